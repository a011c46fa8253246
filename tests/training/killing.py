"""Runs that are killed at random moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch


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
