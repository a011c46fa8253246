"""Files that are whole or not there: written aside, flushed to disk, renamed."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, data: bytes) -> None:
    """Write or replace a file; whenever this is cut short, the old file or none is left."""
    aside = path.with_name(f"_{path.name}.tmp")
    try:
        with aside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
