"""Many logs against a set of requirements, in several processes, and what to tell about them.

report = check_logs("requirements.stl", "logs/", resample=0.1)
for row in report.rows:
    print(row.requirement, row.trace, row.verdict, row.robustness)
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import Problem, RequirementError, RhovecError
from ..files import read_file
from ..formula.derived import Derived
from ..formula.options import exact_step
from ..formula.requirements import (
    Number,
    Requirement,
    Statement,
    read_data,
    require_some,
)
from ..formula.vocabulary import flags_in, labels_in, measured_in
from ..tasks import completed
from ..traces.logs import PathLike, as_names, as_paths, checked, find_files, named_files
from ..traces.remote import find_stored, remote_name
from ..traces.resampling import Missing
from ..traces.tables import Layout, Options
from .logs import Checked, Made, Plan, Unread, check_files
from .rows import Answered, Moments, Row
from .verdict import Outcome

MAX_TOGETHER = 12  # logs that fill the engine, with five assumptions about each
MAX_BYTES = 1 << 23  # of files that are read together
MIN_PARALLEL_BYTES = 1 << 24  # of all files; with less, processes take longer to start than to work


@dataclass(frozen=True)
class Report:
    """What logs show about requirements; rows are ordered by log, then by requirement."""

    requirements: tuple[Requirement, ...]
    traces: tuple[str, ...]
    rows: tuple[Row, ...]
    unread: tuple[Unread, ...]
    made: tuple[Made, ...]
    notes: tuple[str, ...]
    samples: int  # on the grids, of all channels
    scales: Mapping[str, float]  # standard deviation of the expressions that atoms compare
    resample: float | None
    unseen: tuple[str, ...] = ()  # sentences about labels that are in no log

    def of(self, outcome: Outcome) -> list[Row]:
        return [row for row in self.rows if row.verdict == outcome]

    @property
    def doubtful(self) -> list[Row]:
        """Rows whose verdict depends on resampling."""
        return [row for row in self.rows if row.depends_on_resampling]

    @cached_property
    def by_requirement(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {r.key: [] for r in self.requirements}
        for row in self.rows:
            found[row.requirement].append(row)
        return found

    def counts(self, requirement: str) -> Counter[Outcome]:
        return Counter(row.verdict for row in self.by_requirement[requirement])

    def answers(self, requirement: str) -> Answered | None:
        """The responses of a requirement in all logs; None if it has none."""
        total = None
        for row in self.by_requirement[requirement]:
            if row.answers is not None:
                total = (total or Answered()).plus(row.answers)
        return total

    def vacuous(self, requirement: str) -> bool:
        """Whether nothing ever asked for its responses, in any log."""
        rows = self.by_requirement[requirement]
        return bool(rows) and all(row.vacuous for row in rows)

    def severity(self, row: Row) -> float:
        """By how many standard deviations of its expression a requirement is violated; inf without a
        margin."""
        scale = self.scales.get(row.channel) or 1.0
        return -(row.robustness or 0.0) / scale

    def worst(self, n: int = 10) -> list[Row]:
        """The violations with the largest margins over their scales, then those without a margin, of
        flags and modes, which last longest."""

        def key(row: Row) -> tuple[bool, float]:
            if _finite(row):
                return True, self.severity(row)
            return False, sum(b - a for a, b in row.intervals)

        return sorted(self.of(Outcome.VIOLATED), key=key, reverse=True)[:n]

    def status(self, fail_open: bool = False) -> int:
        """The exit status: 2 if something could not be read, 1 with a violation, otherwise 0.

        fail_open: 1 also if a verdict is open, or holds only on the grid.
        """
        if self.unread:
            return 2
        failing = {Outcome.VIOLATED, Outcome.OPEN} if fail_open else {Outcome.VIOLATED}
        failed = any(row.verdict in failing for row in self.rows)
        return int(failed or (fail_open and bool(self.doubtful)))


def _finite(row: Row) -> bool:
    return row.robustness is not None and abs(row.robustness) != float("inf")


# -- the plan --------------------------------------------------------------------------------------


def plan_of(
    requirements: PathLike | Sequence[PathLike] | Sequence[Statement],
    *,
    resample: float | None = None,
    missing: Missing | None = None,
    max_gap: float | None = None,
    hold: Collection[str] = (),
    begin: str = "unknown",
    dt: float | str | None = None,
    rounding: str | None = None,
    discrete: Collection[str] = (),
    tolerance: float | None = None,
    units: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, float]] | None = None,
    parameters: Mapping[str, Number] | None = None,
    layout: Layout = "auto",
    id_column: str | None = None,
    time_column: str | None = None,
    time_unit: str | None = None,
    variables: Sequence[str] | None = None,
    encoding: str | None = None,
    skip_lines: int = 0,
    repair_times: bool = False,
    figures: bool = False,
    invalid: Callable[[Sequence[Problem]], None] | None = None,
) -> tuple[Plan, tuple[Requirement, ...]]:
    """What to check and how, and the requirements.

    requirements: requirement files, or statements of `formula.requirements.read_data`.
    resample: the step of the grid that logs are put on. Without, every log must be evenly sampled, and
        its own step is that of bounds in seconds.
    missing, max_gap, hold: see `rv.resample`.
    begin: "unknown", or "held", which takes the first sample for the past before a log.
    dt: the step of logs without times, or with a single sample. Without, bounds are numbers of samples,
        unless a column may be the times, which is then an error.
    rounding, discrete, tolerance, units, labels: see `rv.parse`. Units and labels in logs are known.
    parameters: values for parameters of the files, {"T": "3 s"}.
    layout, id_column, time_column, time_unit, encoding, skip_lines, repair_times: see `rv.read_logs`.
    variables: the names of the variables of .npy files, or of rows without a header.
    figures: keep what pictures of violations need.
    invalid: called with the requirements that are wrong, which are then left out; by default they are
        an error.
    """
    if begin not in ("unknown", "held"):
        raise RhovecError(f'begin must be "unknown" or "held", not {begin!r}')
    if resample is not None and (
        not isinstance(resample, int | float) or not 0 < resample < float("inf")
    ):
        raise RhovecError(f"resample must be a positive number of seconds, not {resample!r}")
    if resample is not None and dt is not None:
        raise RhovecError(
            "dt is the step of logs without times, which cannot be resampled; leave one of them out"
        )
    statements = tuple(_statements(requirements))
    codes = dict(labels or {})
    compared = labels_in(s.text for s in statements)
    for name, own in compared.items():
        codes[name] = _coded(own, codes.get(name, {}))
    mixed = {
        s.place: Problem(s.place, f"{name} is compared with a number here, and elsewhere with the label "
                         f'"{next(iter(compared[name]))}"; compare it with labels only, or pass '
                         "labels=..., with its codes")
        for s in statements
        for name in sorted(measured_in(s.text) & (compared.keys() - (labels or {}).keys()))
    }  # fmt: skip
    parsing = {
        "rounding": rounding, "discrete": tuple(discrete), "tolerance": tolerance,
        "units": dict(units or {}), "labels": codes,
    }  # fmt: skip
    reading = checked(
        Options(
            layout, (), id_column, time_column, time_unit, codes, frozenset(labels or ()),
            frozenset(), encoding, skip_lines, repair_times, partial=True,
            untimed="pass dt=..., the step of a log without times" if dt is None else "",
            arrays=as_names(variables) if variables else None,
        )
    )  # fmt: skip
    plan = Plan(
        statements, reading, dict(parameters or {}), parsing,
        None if dt is None else float(exact_step(dt)), resample, missing, max_gap, tuple(hold), begin,
        figures,
    )  # fmt: skip
    derived = Derived()
    found, problems = plan.parse_early(derived)
    problems = [*problems, *mixed.values()]
    found = [r for r in found if r.source not in mixed]
    if problems:
        (invalid or _refuse)(problems)
    require_some(found, problems, "the requirements")
    valid = {(r.id, r.source) for r in found}
    statements = tuple(
        s for s in statements if s.kind != "requirement" or (s.name, s.place) in valid
    )
    formulae = [r.formula for r in found]
    inputs = derived.inputs({name for phi in formulae for name in phi.variables})
    if not inputs:
        raise RhovecError("the requirements name no channel, so no log can decide them; name one")
    absent = sorted(set(hold) - inputs)
    if absent:
        raise RhovecError(f"no requirement uses {absent[0]!r}, which is to be held")
    reading = replace(reading, variables=tuple(sorted(inputs)), flags=frozenset(flags_in(formulae)))
    return replace(plan, statements=statements, reading=reading), tuple(found)


def _statements(
    requirements: PathLike | Sequence[PathLike] | Sequence[Statement],
) -> Iterator[Statement]:
    for one in [requirements] if isinstance(requirements, str | Path) else requirements:
        if isinstance(one, Statement):
            yield one
        else:
            yield from read_data(read_file(str(one)), str(one))


def _coded(labels: Mapping[str, int], given: Mapping[str, float]) -> dict[str, float]:
    """The codes of labels that formulae mention: those that are given, and further ones."""
    free = max([-1, *map(int, given.values())]) + 1
    new = [label for label in labels if label not in given]
    return {**given, **{label: free + i for i, label in enumerate(new)}}


def _refuse(problems: Sequence[Problem]) -> None:
    raise RequirementError(problems)


# -- the files -------------------------------------------------------------------------------------


def check_logs(
    requirements: PathLike | Sequence[PathLike] | Sequence[Statement],
    logs: PathLike | Sequence[PathLike],
    *,
    workers: int = 1,
    client: Any = None,
    progress: Callable[[float], object] | None = None,
    **options: Any,
) -> Report:
    """Judge requirements on log files, or on all files of folders; s3://bucket/runs/ is one, too.

    workers: processes. A script needs `if __name__ == "__main__":` for more than one.
    client: a `distributed.Client`, whose workers can read the files, instead of processes here.
    progress: called with the share that is done.
    options: those of `plan_of`.
    """
    plan, found = plan_of(requirements, **options)
    files: dict[str, int] = {}  # bytes by name
    lost: list[Checked] = []
    for path in as_paths(logs):
        try:
            if remote_name(path) is None:
                files |= {str(file): _size(file) for file in find_files([path])}
            else:
                files |= {file.name: file.size for file in find_stored([path])}
        except RhovecError as error:
            lost.append(Checked(str(path), unread=[Unread(str(path), str(error))]))
    if not files and not lost:
        raise RhovecError("no trace file given")
    unnamed = plan.reading.layout == "rows" or any(
        _bare(name).suffix.lower() == ".npy" for name in files
    )
    if plan.reading.arrays and not unnamed:
        raise RhovecError(
            "variables are named for .npy files and --layout rows only, and there is neither"
        )
    results = run(plan, files, workers, progress, client)
    return report_of(plan, found, [*lost, *results])


def _size(file: Path) -> int:
    """Bytes of a file; 0 if it cannot be read, which is reported when its turn comes."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _bare(name: str) -> Path:
    """The name without what says where an object store is."""
    return Path(name.partition("?")[0] if remote_name(name) else name)


def run(
    plan: Plan,
    files: Mapping[str, int],
    workers: int = 1,
    progress: Callable[[float], object] | None = None,
    client: Any = None,
) -> list[Checked]:
    """What files show, in their order; files: bytes by name."""
    sizes = list(files.values())
    labels = [remote_name(one) or one for one, _ in named_files([_bare(name) for name in files])]
    places = list(files)
    if client is not None:
        workers = max(1, sum(client.nthreads().values()))
        places = [name if remote_name(name) else str(Path(name).absolute()) for name in files]
    tasks = list(_tasks(list(zip(labels, places, strict=True)), sizes, workers))
    alone = len(files) == 1
    done = 0
    results: list[list[Checked]] = [[] for _ in tasks]

    def arrived(place: int, found: list[Checked]) -> None:
        nonlocal done
        results[place] = found
        done += len(found)
        if progress:
            progress(done / len(files))

    if client is not None:
        for i, found in completed(check_files, ((plan, task, alone) for task in tasks), client):
            arrived(i, found)
    elif workers == 1 or len(tasks) == 1 or sum(sizes) < MIN_PARALLEL_BYTES:
        for i, task in enumerate(tasks):
            arrived(i, check_files(plan, task, alone))
    else:
        for i, found in _in_processes(plan, tasks, alone, workers):
            arrived(i, found)
    return [one for found in results for one in found]


def _tasks(
    files: Sequence[tuple[str, str]], sizes: Sequence[int], workers: int
) -> Iterator[list[tuple[str, str]]]:
    """Files that are judged together: enough for the engine, few enough for memory and for workers."""
    most = max(1, min(MAX_TOGETHER, -(-len(files) // workers)))
    task: list[tuple[str, str]] = []
    total = 0
    for file, size in zip(files, sizes, strict=True):
        if task and (len(task) == most or total + size > MAX_BYTES):
            yield task
            task, total = [], 0
        task.append(file)
        total += size
    if task:
        yield task


def _in_processes(
    plan: Plan, tasks: Sequence[list[tuple[str, str]]], alone: bool, workers: int
) -> Iterator[tuple[int, list[Checked]]]:
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    if forks:  # one process imports the engine, and the others are forks of it
        context.set_forkserver_preload(["rhovec.check.logs", "rhovec.robustness.cpu"])
    with ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context) as pool:
        try:
            futures: dict[Future[list[Checked]], int] = {
                pool.submit(check_files, plan, task, alone): i for i, task in enumerate(tasks)
            }
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise RhovecError(
                "a process that checks logs was ended, perhaps for lack of memory; try it with "
                "workers=1"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def report_of(
    plan: Plan, requirements: Sequence[Requirement], results: Sequence[Checked]
) -> Report:
    """One report about all files."""
    moments: dict[str, Moments] = {}
    for one in results:
        for channel, own in one.moments.items():
            moments[channel] = moments.get(channel, Moments()).plus(own)
    return Report(
        tuple(requirements),
        tuple(trace for one in results for trace in one.traces),
        tuple(row for one in results for row in one.rows),
        tuple(unread for one in results for unread in one.unread),
        tuple(made for one in results for made in one.made),
        tuple(note for one in results for note in one.notes),
        sum(one.samples for one in results),
        {channel: one.deviation for channel, one in moments.items()},
        plan.resample,
        tuple(_unseen(plan, results)),
    )


def _quoted(labels: Sequence[str], word: str) -> str:
    """Some of the labels, in quotation marks."""
    shown = [f'"{label}"' for label in labels[:8]]
    if len(labels) > 8:
        shown.append(f"{len(labels) - 8} others")
    return f"{', '.join(shown[:-1])} {word} {shown[-1]}" if len(shown) > 1 else "".join(shown)


def _unseen(plan: Plan, results: Sequence[Checked]) -> Iterator[str]:
    """Labels that requirements compare a channel with and that no log has, perhaps misspelt."""
    for channel, compared in labels_in(s.text for s in plan.statements).items():
        logs = [one.labels[channel] for one in results if channel in one.labels]
        seen = set[str]().union(*logs)
        absent = [label for label in compared if label not in seen]
        if logs and absent:
            there = _quoted(sorted(seen), "and") or "something else"
            yield f"In no log is {channel} {_quoted(absent, 'or')}; it is {there}."
