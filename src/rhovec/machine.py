"""Facts about the machine and its software that a measurement depends on.

The one source of them for training records, benchmarks, the reproduction and soak tests, so that
records made by different programs can be put side by side.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any

CPU_INFO = Path("/proc/cpuinfo")
_LIMIT: ContextVar[int] = ContextVar("cores", default=0)  # 0: none


def cores() -> int:
    """Number of CPU cores that this process may use, and this thread within `limited`."""
    all_of_them = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(_LIMIT.get() or all_of_them, all_of_them)


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Let the calling thread use no more than this many cores: a task among others of a machine."""
    before = _LIMIT.set(threads)
    try:
        yield
    finally:
        _LIMIT.reset(before)


def memory() -> int | None:
    """Bytes of physical memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def facts(
    device: str | None = None, packages: Iterable[str] = ("numpy", "numba")
) -> dict[str, Any]:
    """Processor, cores, load, platform, and versions of Python and of `packages`, ready for JSON.

    torch is added once it has been imported. device: for "cuda" or "cuda:1", its name and the
    version of CUDA are added, too.
    """
    found: dict[str, Any] = {
        "cpu": processor(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
    }
    names = [*packages, *(["torch"] if "torch" in sys.modules else [])]
    found |= {name: version(name) for name in dict.fromkeys(names)}
    if device is not None and device.startswith("cuda"):
        import torch

        found |= {"torch": version("torch"), "gpu": torch.cuda.get_device_name(device)}
        found["cuda"] = torch.version.cuda
    return found


def describe(device: str | None = None) -> str:
    """The machine in one line: processor, cores, GPU, Python, numpy and torch."""
    found = facts(device, ["numpy"])
    parts = [f"{found['cpu']}, {found['cores']} cores"]
    parts += [found["gpu"]] if "gpu" in found else []
    parts.append(f"Python {found['python']}")
    return ", ".join(
        parts + [f"{name} {found[name]}" for name in ("numpy", "torch") if name in found]
    )


def processor() -> str:
    """Name of the CPU, as the system gives it."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def commit() -> str | None:
    """Git commit of the sources that run; None if they are not in a repository."""
    git = shutil.which("git")
    if git is None:
        return None

    def ask(*arguments: str) -> str:
        command = [git, "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    # An installed copy may lie in the ignored environment of somebody else's repository.
    return ask("rev-parse", "HEAD") or None if ask("ls-files", Path(__file__).name) else None
