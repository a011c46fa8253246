"""Runs that are stopped, or killed at random moments, and go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rhovec.training import records


def stopped_and_resumed(train: Callable[..., Any], config: Any, folder: Path) -> Any:
    """What train(config) returns after it was stopped at step 3, with a checkpoint at step 2."""

    class Stopped(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        if line["step"] == 3:
            raise Stopped

    with pytest.raises(Stopped):
        train(config, folder, stop)
    assert json.loads((folder / records.POINTER).read_text())["step"] == 2
    return train(config, folder)


def assert_same_log(first: Path, second: Path, kept: Sequence[str]) -> None:
    """The runs in two folders logged the same, as far as these fields go."""
    logs = [
        [{k: line.get(k) for k in kept} for line in records.read_log(folder)]
        for folder in (first, second)
    ]
    assert logs[0] == logs[1]


def weights_after_kills(module: str, config: Any, folder: Path, kills: int) -> Any:
    """Parameters of module.train(config) when its run is killed and restarted `kills` times."""
    script = (
        f"import sys, torch; from {module} import *\n"
        f"student = train({config!r}, sys.argv[1])\n"
        "torch.save(torch.cat([p.detach().flatten() for p in student.parameters()]), sys.argv[2])"
    )
    out, log = folder / "weights.pt", folder / "run" / "log.jsonl"
    command = [sys.executable, "-c", script, str(folder / "run"), str(out)]
    rng = np.random.default_rng(0)
    killed = 0
    for attempt in range(kills + 1):
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        if attempt < kills:  # once it has written to its log, somewhere in the middle of its work
            before = log.read_bytes() if log.exists() else b""
            while process.poll() is None and (not log.exists() or log.read_bytes() == before):
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.3))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
        _, errors = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors.decode()
    assert killed > 0
    return torch.load(out, weights_only=True)
