"""Facts about the machine: complete, ready for JSON, and the same for everyone who asks."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rhovec
from rhovec import machine

ROOT = Path(__file__).parents[1]


def test_facts() -> None:
    found = machine.facts()
    json.dumps(found, allow_nan=False)
    assert found["python"] == platform.python_version() and found["numpy"] == np.__version__
    assert 1 <= found["cores"] <= (os.cpu_count() or 1) and found["cpu"]
    assert "gpu" not in found
    line = machine.describe()
    assert found["cpu"] in line and f"{found['cores']} cores" in line
    assert f"Python {found['python']}, numpy {found['numpy']}" in line


def test_torch_is_named_once_it_is_used() -> None:
    pytest.importorskip("torch")
    code = "from rhovec.machine import describe; a = describe(); {}; print(a, describe(), sep='|')"
    environment = {**os.environ, "PYTHONPATH": str(Path(rhovec.__file__).parents[1])}
    for load, there in (("pass", False), ("import torch", True)):
        run = subprocess.run(
            [sys.executable, "-c", code.format(load)], env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        before, after = run.stdout.split("|")
        assert "torch" not in before and ("torch" in after) == there


@pytest.mark.gpu
def test_the_gpu_is_named() -> None:
    import torch

    found = machine.facts("cuda")
    assert found["gpu"] == torch.cuda.get_device_name() and found["cuda"] == torch.version.cuda
    assert found["gpu"] in machine.describe("cuda")


def test_the_processor_without_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "none")
    assert machine.processor() == (platform.processor() or platform.machine())


def test_the_commit_is_that_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of our repository; not of somebody else's in which a copy is installed, and none without git."""
    module = tmp_path / "machine.py"
    module.write_text(Path(machine.__file__).read_text())
    monkeypatch.setattr(machine, "__file__", str(module))
    assert machine.commit() is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert machine.commit() is None
    subprocess.run([*git, "add", "machine.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "y"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert machine.commit() == head.stdout.strip()
    monkeypatch.setenv("PATH", "")
    assert machine.commit() is None
