"""A run is a folder: its configuration and environment, its curves, and a checkpoint.

    config.json        the whole configuration
    environment.json   machine, versions, commit
    log.jsonl          figures, one line every few steps
    curves.png         the same as a plot
    checkpoint.json    the name of the checkpoint, its SHA-256 and the step at which to continue
    step-N.safetensors the checkpoint: all tensors after step N

A checkpoint is written atomically, and only then named by checkpoint.json, which is replaced atomically
too. So whenever a run is killed, its folder has a complete checkpoint or none.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from .. import machine
from ..errors import RhovecError, RhovecWarning
from ..files import locked, remove_leftovers, write_file
from ..models.store import SPACE

POINTER = "checkpoint.json"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other trainings out of a folder; the system ends the claim with the process.

    On file systems without locks nobody is kept out.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, wait=False))
        except BlockingIOError:
            raise RhovecError(
                f"another training is running in {folder}; wait for it, or choose another folder"
            ) from None
        yield


def write_json(path: Path, value: Any) -> None:
    write_file(path, (json.dumps(value, indent=1) + "\n").encode())


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Any) -> None:
    """Make these tensors the checkpoint after `step` steps; facts are any JSON."""
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
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise RhovecError(
            f"{pointer} is damaged ({error}); delete it to start the run again"
        ) from None
    try:
        data = (folder / Path(name).name).read_bytes()
    except OSError as error:
        raise RhovecError(
            f"{folder / name} cannot be read ({error.strerror}); restore it, or delete {POINTER} to "
            "start the run again"
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise RhovecError(
            f"{folder / name} is not the file that was saved: its SHA-256 differs. Restore it, or "
            f"delete {POINTER} to start the run again"
        )
    return step, load(data), facts


def environment(device: str) -> dict[str, Any]:
    """What a run depends on besides its configuration: machine, versions, commit and command."""
    from .. import __version__

    program = Path(sys.argv[0]).name.replace("__main__.py", "rhovec")
    command = " ".join([program, *sys.argv[1:]])
    ours = {"rhovec": __version__, "commit": machine.commit(), "command": command}
    return ours | machine.facts(device)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of the log; a kill or a full disk may have cut the last one."""
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [_parsed(line, path, "delete it to continue without its figures") for line in lines]


def _parsed(text: bytes, path: Path, advice: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    except ValueError:
        pass
    raise RhovecError(f"{path} is damaged; {advice}")


def tensors_of(
    student: Module, averaged: list[Tensor], optimisers: list[tuple[torch.optim.Optimizer, float]]
) -> dict[str, Tensor]:
    names = [name for name, _ in student.named_parameters()]
    out: dict[str, Tensor] = {f"weights.{name}": p for name, p in student.named_parameters()}
    out |= {f"averaged.{name}": p for name, p in zip(names, averaged, strict=True)}
    for i, (optimiser, _) in enumerate(optimisers):
        for number, state in optimiser.state_dict()["state"].items():
            out |= {f"optimiser.{i}.{number}.{key}": value for key, value in state.items()}
    return out


def open_record(folder: Path, config: Any) -> None:
    """Start the folder's record, or check that it is of this run and cut its log at the checkpoint."""
    there = folder / "config.json"
    if (folder / SPACE).exists():
        raise RhovecError(f"{folder}: there is a space in this folder; choose another one")
    asked = asdict(config)
    remove_leftovers(folder)
    if not there.exists():
        write_json(there, asked)
        write_json(folder / "environment.json", environment(config.device))
    before = _parsed(there.read_bytes(), there, "restore it, or choose another folder")
    if before.keys() != asked.keys():
        raise RhovecError(
            f"{folder} holds a run of another kind, or of another version; choose another folder"
        )
    for name in asked:
        if name not in ("device", "workers") and before.get(name) != asked[name]:
            raise RhovecError(
                f"{folder} holds a run with {name} {before.get(name)}, not {asked[name]}; "
                "choose another folder, or the same configuration to continue it"
            )
    found = load_checkpoint(folder)
    kept = [line for line in read_log(folder) if found and line["step"] <= found[0]]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    write_file(folder / "log.jsonl", text.encode())


def resume(
    folder: Path,
    student: Module,
    averaged: list[Tensor],
    optimisers: list[tuple[torch.optim.Optimizer, float]],
) -> tuple[int, tuple[int, ...] | None, float]:
    """Restore the folder's checkpoint, if any: (step, where recipes continue, seconds spent)."""
    found = load_checkpoint(folder)
    if found is None:
        return 0, None, 0.0
    step, tensors, facts = found
    with torch.no_grad():
        for (name, p), average in zip(student.named_parameters(), averaged, strict=True):
            p.copy_(tensors[f"weights.{name}"])
            average.copy_(tensors[f"averaged.{name}"])
    for i, (optimiser, _) in enumerate(optimisers):
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith(f"optimiser.{i}."):
                number, key = name.split(".")[2:]
                state.setdefault(int(number), {})[key] = value
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": state, "param_groups": groups})
    return step, tuple(facts["next"]), facts["seconds"]


def draw_curves(folder: Path, names: Sequence[str]) -> None:
    """Draw curves.png: four figures of the log over the steps, for training and validation.

    Without matplotlib there is a warning and no plot: a run that has been trained is worth more.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        warnings.warn(
            'curves.png needs matplotlib: pip install "rhovec[plots]"; log.jsonl has the numbers',
            RhovecWarning,
            stacklevel=2,
        )
        return

    lines = read_log(folder)
    figure = Figure(figsize=(11, 7), layout="constrained")
    for axes, name in zip(figure.subplots(2, 2).flat, names, strict=True):
        for part, label, style in (
            ("", "training batch", "-"),
            ("valid_", "validation", ".-"),
            ("valid_kernel_", "the kernel's own", ".:"),
        ):
            chosen = {line["step"]: line[part + name] for line in lines if part + name in line}
            values = [1 - v if name == "alignment" else v for v in chosen.values()]
            if chosen:
                axes.plot(list(chosen), values, style, label=label)
        if name in ("loss", "alignment", "error"):
            axes.set_yscale("log")
        axes.set(xlabel="step", ylabel="1 − alignment" if name == "alignment" else name)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(folder / "curves.png", dpi=110)
