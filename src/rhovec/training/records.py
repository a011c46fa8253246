"""A run is a folder: what was asked for, where it ran, its curve, and checkpoints to go on from.

    config.json        the whole configuration
    environment.json   machine, versions, commit
    log.jsonl          a line every so many steps
    curves.png         the same, drawn
    checkpoint.json    which file is the checkpoint, its SHA-256 and the step to go on with
    step-N.safetensors all tensors of that moment

A checkpoint is written aside, flushed to disk and renamed, and only then named by checkpoint.json, which
is replaced in one piece: whenever a run is killed, the folder has a whole checkpoint or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingDependencyError, RhovecError
from ..files import write_file

if TYPE_CHECKING:
    from torch import Tensor

POINTER = "checkpoint.json"


def write_json(path: Path, value: Any) -> None:
    write_file(path, (json.dumps(value, indent=1) + "\n").encode())


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Any) -> None:
    """Make these tensors the checkpoint from which step `step` goes on; facts are any JSON."""
    from safetensors.torch import save

    data = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    name = f"step-{step}.safetensors"
    write_file(folder / name, data)
    digest = hashlib.sha256(data).hexdigest()
    write_json(folder / POINTER, {"file": name, "sha256": digest, "step": step, "facts": facts})
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            old.unlink()


def load_checkpoint(folder: Path) -> tuple[int, dict[str, Tensor], Any] | None:
    """(step, tensors, facts) of the checkpoint, or None if the folder has none."""
    pointer = folder / POINTER
    if not pointer.exists():
        return None
    from safetensors.torch import load

    try:
        record = json.loads(pointer.read_text())
        name, digest, step, facts = (record[k] for k in ("file", "sha256", "step", "facts"))
        data = (folder / Path(name).name).read_bytes()
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise RhovecError(
            f"{pointer} is damaged ({error}); delete it to begin the run again"
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise RhovecError(
            f"{folder / name} is not the file that was saved: its SHA-256 differs. Restore it, or "
            f"delete {POINTER} to begin the run again"
        )
    return step, load(data), facts


def environment(device: str) -> dict[str, Any]:
    """Where a run takes place."""
    import numpy
    import torch

    from .. import __version__

    here = Path(__file__).parent
    git = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    program = Path(sys.argv[0]).name.replace("__main__.py", "rhovec")
    facts = {
        "rhovec": __version__, "commit": git.stdout.strip() or None, "python": platform.python_version(),
        "torch": torch.__version__, "numpy": numpy.__version__, "platform": platform.platform(),
        "cpus": os.cpu_count(), "command": " ".join([program, *sys.argv[1:]]),
    }  # fmt: skip
    if device.startswith("cuda"):
        facts |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    return facts


def read_log(folder: Path) -> list[dict[str, Any]]:
    path = folder / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def draw_curves(folder: Path) -> None:
    """curves.png: every quantity of the log over the steps, training and validation."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            'curves need matplotlib: pip install "rhovec[plots]"'
        ) from None

    lines = read_log(folder)
    names = ("loss", "alignment", "uniformity", "error")
    figure = Figure(figsize=(11, 7), layout="constrained")
    for axes, name in zip(figure.subplots(2, 2).flat, names, strict=True):
        for part, label, style in (("", "training batch", "-"), ("valid_", "validation", ".-")):
            chosen = [line for line in lines if part + name in line]
            if chosen:
                values = [line[part + name] for line in chosen]
                if name == "alignment":
                    values = [1 - value for value in values]
                axes.plot([line["step"] for line in chosen], values, style, label=label)
        if name == "uniformity":
            chosen = [line for line in lines if "valid_kernel_uniformity" in line]
            levels = [line["valid_kernel_uniformity"] for line in chosen]
            axes.plot([line["step"] for line in chosen], levels, ".:", label="the kernel's own")
        else:
            axes.set_yscale("log")
        axes.set(xlabel="step", ylabel="1 − alignment" if name == "alignment" else name)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(folder / "curves.png", dpi=110)
