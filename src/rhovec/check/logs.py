"""Requirements on log files: read, resampled and judged, a few files at a time.

`check_files(plan, files)` is a function of a plan and of names and paths of files; all of these, and
its result, can go to another process or machine. A few files are judged together, because the engine
takes many traces at once; no more than those are in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import Problem, RhovecError, TraceError
from ..formula.core import Formula
from ..formula.derived import Derived
from ..formula.options import ANY_UNIT
from ..formula.printer import channel_text
from ..formula.requirements import Number, Requirement, Statement, resolve
from ..traces import Channel, Grid, Log, derive, resample
from ..traces.cells import no_number
from ..traces.logs import as_log, read_file
from ..traces.remote import local_copy
from ..traces.resampling import Missing
from ..traces.tables import Options, listed
from .rows import Context, Moments, Row, moments_of, row_of, values_of
from .sampled import as_sampled
from .verdict import verdicts

MAX_VALUES = 1 << 22  # nodes of formulae x points of a log that are judged together
ANY_STEP = 1.0  # in the place of a step that only a log will tell; long bounds are then few steps


class Made(NamedTuple):
    """What resampling made up in a channel of a log, or left unknown."""

    trace: str
    channel: str
    made_up: int
    unknown: int
    text: str  # with the first places


class Unread(NamedTuple):
    """A file, or a part of it, that could not be read or judged."""

    file: str
    message: str


@dataclass
class Checked:
    """What one file shows."""

    file: str
    traces: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was repaired
    samples: int = 0  # on the grids, of all channels
    moments: dict[str, Moments] = field(default_factory=dict)  # of the expressions of atoms
    labels: dict[str, set[str]] = field(default_factory=dict)  # that channels have in the logs

    def refuse(self, message: str) -> None:
        self.unread.append(Unread(self.file, message))


@dataclass(frozen=True)
class Plan:
    """What to check and how; see `check_logs`."""

    statements: tuple[Statement, ...]
    reading: Options  # its variables are the channels that the requirements use
    parameters: Mapping[str, Number] = field(default_factory=dict)
    parsing: Mapping[str, Any] = field(default_factory=dict)  # options of `parse`, but the step
    dt: float | None = None  # of logs without times
    resample: float | None = None
    missing: Missing | None = None
    max_gap: float | None = None
    hold: tuple[str, ...] = ()
    begin: str = "unknown"
    figures: bool = False

    def parse(
        self, dt: float | None, units: Mapping[str, str], derived: Derived
    ) -> tuple[list[Requirement], list[Problem]]:
        """The requirements for logs with this step and these units, and what is wrong with others."""
        if units is not ANY_UNIT:
            units = {**units, **self.parsing.get("units", {})}
        options = {**self.parsing, "units": units, "dt": dt, "derived": derived}
        found, problems = resolve(self.statements, self.parameters, **options)
        return _told_apart(found), problems

    def parse_early(self, derived: Derived) -> tuple[list[Requirement], list[Problem]]:
        """The requirements as far as they are known before any log is read.

        Their identifiers and names count. Their bounds do only if the step is known, and thresholds
        with a unit do not.
        """
        step = self.resample or self.dt
        loose = self if step else replace(self, parsing={**self.parsing, "rounding": "nearest"})
        return loose.parse(step or ANY_STEP, ANY_UNIT, derived)


def _told_apart(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Requirements by names that differ: those without an identifier and with the same text get their
    place added to it."""
    seen: set[str] = set()
    out = []
    for one in requirements:
        if not one.id and one.text in seen:
            one = replace(one, text=f"{one.text} ({one.source})")
        seen.add(one.key)
        out.append(one)
    return out


class _Ready(NamedTuple):
    """A log on its grid, and the file that it is from."""

    file: Checked
    grid: Grid
    units: Mapping[str, str]  # of all channels that were read; formulae may use some in rates only
    lacking: tuple[str, ...]  # channels that it does not have

    @property
    def discrete(self) -> frozenset[str]:
        return frozenset(name for name, kind in self.grid.kinds.items() if kind != "number")


def check_files(plan: Plan, files: Sequence[tuple[str, str]], alone: bool = True) -> list[Checked]:
    """What files show: of each, given as its name and its path.

    alone: whether there is only one file in all, so that its traces go by their own names.
    """
    out = [Checked(path) for _, path in files]
    derived = Derived()
    known, _ = plan.parse_early(derived)
    groups: dict[Any, list[_Ready]] = {}
    copies: dict[str, str] = {}  # names of files in object storage, by the paths of their copies
    for file, (label, name) in zip(out, files, strict=True):
        for one in _fetched(plan, known, derived, label, name, alone, file, copies):
            units = tuple(sorted(u for u in one.units.items() if u[1].isprintable()))
            groups.setdefault((one.grid.dt, units, one.discrete, one.lacking), []).append(one)
    for (dt, units, discrete, lacking), ready in groups.items():
        _judge(plan, dt, dict(units), discrete, lacking, ready)
    for file in out:
        order = {name: i for i, name in enumerate(file.traces)}
        file.rows.sort(key=lambda row: order[row.trace])
        for path, name in copies.items():
            file.unread = [
                one._replace(message=one.message.replace(path, name)) for one in file.unread
            ]
            file.notes = [text.replace(path, name) for text in file.notes]
    return out


def _fetched(
    plan: Plan, known: Sequence[Requirement], derived: Derived, label: str, name: str, alone: bool,
    file: Checked, copies: dict[str, str],
) -> list[_Ready]:  # fmt: skip
    """The logs of a file on their grids. One in object storage is copied while it is read."""
    try:
        with local_copy(name) as path:
            if str(path) != name:
                copies[str(path)] = name
            return list(_ready(plan, known, derived, label, path, alone, file))
    except RhovecError as error:
        file.refuse(str(error))
        return []


def _able(
    requirements: Iterable[Requirement], derived: Derived, lacking: Collection[str]
) -> list[Requirement]:
    """Those that need no channel which a log lacks."""
    gone = set(lacking)
    return [r for r in requirements if not gone & derived.inputs(r.formula.variables)]


def _ready(
    plan: Plan,
    known: Sequence[Requirement],
    derived: Derived,
    label: str,
    path: Path,
    alone: bool,
    file: Checked,
) -> Iterator[_Ready]:
    """The logs of a file on their grids. What is wrong is noted in `file`."""
    try:
        parts = list(read_file(label, path, plan.reading, alone))
    except RhovecError as error:
        file.refuse(str(error))
        return
    wanted = plan.reading.variables or ()
    lacking = tuple(name for name in wanted if name not in parts[0][1].series)
    for name in lacking:
        needing = [r.id or r.label for r in known if name in derived.inputs(r.formula.variables)]
        why = _why_lacking(plan, path, name, list(parts[0][1].series))
        file.refuse(f"{why}; not checked: {listed(needing)}")
    names = {name for r in _able(known, derived, lacking) for name in r.formula.variables}
    for name, part in parts if names else ():
        try:
            log = as_log(name, part, plan.reading)
            grid = _grid(plan, derived, names, _timed(plan, log))
            if len(log.times) == 1 and plan.dt is not None and plan.resample is None:
                grid = replace(grid, dt=plan.dt)  # of its own it has none
        except RhovecError as error:
            file.refuse(str(error) if part.id == "" else f"{error} (trace {part.id})")
            continue
        file.traces.append(name)
        file.samples += grid.values.size
        file.made += [Made(name, f.channel, f.made_up, f.unknown, str(f)) for f in grid.report]
        file.notes += [f"{name}: {text}" for text in grid.notes]
        for channel in plan.reading.labels.keys() & log.channels:
            seen = _labels_in(log.channels[channel], plan.reading.labels[channel])
            file.labels.setdefault(channel, set()).update(seen)
        yield _Ready(file, grid, log.units, lacking)


def _labels_in(channel: Channel, codes: Mapping[str, float]) -> set[str]:
    """The labels that a channel has; codes: of those that formulae mention."""
    found = set(np.unique(channel.values).tolist())
    return {label for label, code in {**codes, **(channel.labels or {})}.items() if code in found}


def _why_lacking(plan: Plan, path: Path, name: str, there: Sequence[str]) -> str:
    """What the reader says about a channel that is not there: also, what is."""
    if path.suffix.lower() == ".npy":
        known = f"it has {listed(there)}, unless named with --variables"
        return f"{path}: there is no variable {name!r}; {known}"
    try:
        list(read_file("", path, replace(plan.reading, variables=(name,)), alone=False))
    except RhovecError as error:
        return str(error)
    return f"{path}: there is no variable {name!r}"


def _require_numbers(plan: Plan, log: Log) -> None:
    """Refuse texts in a channel that formulae compare with numbers."""
    for name, channel in log.channels.items():
        if channel.kind == "enumeration" and name not in plan.reading.labels:
            row = int((~np.isnan(channel.values)).argmax())
            text = next(
                t for t, code in (channel.labels or {}).items() if code == channel.values[row]
            )
            names = f'; a requirement compares names as in {name} == "{text[:40]}"'
            raise TraceError(
                f"{log.source}{log.where(row)}, channel {name!r}: {no_number(text, names)}"
            )


def _timed(plan: Plan, log: Log) -> Log:
    """The log, with times by the step that was given if it has none."""
    if log.timed or plan.dt is None:
        return log
    return replace(log, times=log.times * plan.dt, timed=True)


def _grid(plan: Plan, derived: Derived, names: Collection[str], log: Log) -> Grid:
    def held() -> list[str]:
        return [name for name in plan.hold if name in log.channels]

    _require_numbers(plan, log)
    made = derived.channels.keys() & names
    log = derive(log, derived, made, max_gap=plan.max_gap, hold=held())
    log = replace(log, channels={n: c for n, c in log.channels.items() if n in names})
    return resample(log, plan.resample, missing=plan.missing, max_gap=plan.max_gap, hold=held())


def _judge(
    plan: Plan,
    dt: float | None,
    units: Mapping[str, str],
    discrete: Collection[str],
    lacking: Collection[str],
    ready: Sequence[_Ready],
) -> None:
    """Add the rows of logs with the same step, units and channels to their files."""
    derived = Derived()
    found: list[Requirement] = []
    problems: Sequence[object]
    try:
        found, problems = plan.parse(dt, units, derived)
    except RhovecError as error:  # a step that no bound can be read with
        problems = [error]
    step = f", with its step of {dt:g} s" if dt and not plan.resample else ""
    for file in {id(one.file): one.file for one in ready}.values():
        for problem in problems:
            file.refuse(f"{file.file}{step}: {problem}")
    able = _able(found, derived, lacking)
    if able:
        named = {*discrete, *plan.parsing.get("discrete", ()), *plan.parsing.get("labels", ())}
        _add_rows(plan, able, {**derived.units, **units}, named, ready)


def _portions(formulae: Sequence[Formula], points: int) -> Iterator[Sequence[Formula]]:
    """Formulae that are judged together: all on a log of usual length, one by one on a very long one."""
    portion: list[Formula] = []
    nodes = 0
    for phi in formulae:
        if portion and (nodes + phi.size) * points > MAX_VALUES:
            yield portion
            portion, nodes = [], 0
        portion.append(phi)
        nodes += phi.size
    yield portion


def _add_rows(
    plan: Plan,
    requirements: Sequence[Requirement],
    units: Mapping[str, str],
    discrete: Collection[str],
    ready: Sequence[_Ready],
) -> None:
    logs = [as_sampled(one.grid) for one in ready]
    formulae = [requirement.formula for requirement in requirements]
    try:
        judged = []
        for some in _portions(formulae, max(log.points for log in logs)):
            judged += verdicts(some, logs, begin=plan.begin, discrete=discrete)
    except RhovecError as error:  # numbers that are too large, say: which log has them?
        if len(ready) > 1:
            for one in ready:
                _add_rows(plan, requirements, units, discrete, [one])
        else:
            ready[0].file.refuse(f"{ready[0].file.file}: {error}")
        return
    channels = dict.fromkeys(channel for phi in formulae for channel in phi.channels)
    for i, (one, log) in enumerate(zip(ready, logs, strict=True)):
        file = one.file
        context = Context(
            log, file.file, plan.begin, discrete, units, one.grid.labels, plan.figures
        )
        file.rows += [
            row_of(requirement, verdict[i], context)
            for requirement, verdict in zip(requirements, judged, strict=True)
        ]
        for channel in channels:
            text, own = channel_text(channel), moments_of(values_of(channel, log.samples))
            file.moments[text] = file.moments.get(text, Moments()).plus(own)
