"""Libraries under attack: killed at random moments, with flipped bits, cut short, with a million rows.

Each function does n attacks from one seed, asserts that nothing confirmed is lost and that no damage
goes unnoticed, and returns what it counted. The normal suite runs a few of each (test_search_file.py),
`make soak` many (test_soak.py).
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.formula import Formula
from rhovec.search import Index, coarse, file, rows

PATIENCE = 60  # seconds until a process says something
ALL = 100_000  # more hits than any library here has entries, but for the million


class Hashed:
    """Unit vectors that are made of a formula's text, at once and without any model."""

    fingerprint = "hashed"

    def __init__(self, width: int = 32):
        self.width = width

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        rng = [np.random.default_rng(zlib.crc32(str(phi).encode())) for phi in formulae]
        vectors = np.array([each.normal(size=self.width) for each in rng], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def kernel(self, n_traces: int | None = None, seed: int = 0) -> rv.StlKernel:
        return rv.StlKernel(n_traces=n_traces, seed=seed)


def formula(number: int) -> str:
    return f"x_{number % 3} > {number}"


# -- kills -----------------------------------------------------------------------------------------


def kills(folder: Path, n: int, seed: int = 0) -> dict[str, Any]:
    """Kill n processes that build, change and compact a library; nothing confirmed may be lost.

    A process says what it is about to do, does it, and says that it is done. After the kill the
    library must be in the state before or after the last thing said, whole. Sometimes only the main
    file is removed then, which leaves SQLite's log behind for the next build.
    """
    path = folder / "library"
    chance = random.Random(seed)
    said: Counter[str] = Counter()
    entries: dict[int, int] | None = None  # id -> number of the formula; None: there is no library
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "MAX_EXACT", 32 * 60)  # so that the approximate index is made, too
        patch.setattr(coarse, "SINGLE_LIST", 50)
        for number in range(n):
            patch.setattr(rows, "WAIT", 5.0)
            lines = _killed(path, chance.random(), chance.choice([0.05, 0.2, 0.6]), number)
            possible = entries
            for line in lines:
                action, phase, change = json.loads(line)
                following = _after(entries if phase == "begin" else possible, action, change)
                if phase == "begin":
                    possible = following
                else:
                    entries = possible = following
                    said[f"{action} confirmed"] += 1
            if lines and json.loads(lines[-1])[1] == "begin":
                said[f"{json.loads(lines[-1])[0]} cut short"] += 1
            if entries is not None and chance.random() < 0.1:
                path.unlink()
                said["main file removed"] += 1
                entries = None
                continue
            entries = _held(path, entries, possible)
    said["temporary files left"] = len(list(folder.glob(".rhovec-*.tmp")))
    return {"kills": n, **said}


def _after(entries: dict[int, int] | None, action: str, change: Any) -> dict[int, int] | None:
    if action == "build":
        return {i + 1: number for i, number in enumerate(change)}
    if entries is None or action in ("opening", "compaction"):
        return entries
    if action == "add":
        return entries | dict(change)
    return {i: number for i, number in entries.items() if i not in change}


def _held(
    path: Path, entries: dict[int, int] | None, possible: dict[int, int] | None
) -> dict[int, int] | None:
    """What the library holds, which must be one of the two."""
    if entries is None and (not path.exists() or path.stat().st_size == 0):
        path.unlink(missing_ok=True)  # the name was claimed, and then came the kill
        return None
    with Index.open(path, vectors=Hashed()) as index:
        index.verify()
        hits = index.search(formula(0), ALL)
        held = {hit.id: int(str(hit.formula).split()[-1]) for hit in hits}
        assert len(index) == len(held)
        assert all(hit.requirement == f"REQ-{held[hit.id]}" for hit in hits)
    assert held in (entries, possible)
    return held


def _killed(path: Path, share: float, longest: float, seed: int) -> list[str]:
    """What a process said until it was killed, after at most `longest` seconds of work."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numba's threads are not used here
        child = os.fork()
    if not child:
        try:
            os.close(reading)
            _work(path, random.Random(seed), lambda *say: os.write(writing, _line(*say)))
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(1)  # not killed: something went wrong
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        begun, _, _ = select.select([reading], [], [], PATIENCE)
        time.sleep(share * longest)
        os.kill(child, signal.SIGKILL)
        said = stream.read()
    _, status = os.waitpid(child, 0)
    assert begun and os.WIFSIGNALED(status), said.decode()
    return said.decode().splitlines()


def _line(*say: Any) -> bytes:
    return json.dumps(say).encode() + b"\n"


def _work(path: Path, chance: random.Random, say: Callable[..., object]) -> None:
    """Change the library until the kill. Lines fit the pipe, which writes them whole."""
    if not path.exists():
        numbers = [chance.randrange(10**6) for _ in range(chance.randrange(20, 90))]
        say("build", "begin", numbers)
        Index.build(map(formula, numbers), path, vectors=Hashed(), requirements=_names(numbers))
        say("build", "end", numbers)
    while True:
        say("opening", "begin", None)
        with Index.open(path, vectors=Hashed()) as index:
            say("opening", "end", None)
            for _ in range(chance.randrange(1, 12)):
                last = index._backend._rows.state().last
                held = [hit.id for hit in index.search(formula(0), ALL)]
                action = chance.choice(["add", "add", "delete", "compaction"])
                if action == "add":
                    numbers = [chance.randrange(10**6) for _ in range(chance.randrange(1, 40))]
                    change: Any = list(enumerate(numbers, last + 1))
                    say("add", "begin", change)
                    index.add(map(formula, numbers), requirements=_names(numbers))
                elif action == "delete" and len(held) > 30:
                    change = chance.sample(held, chance.randrange(1, 15))
                    say("delete", "begin", change)
                    index.delete(change)
                else:
                    action, change = "compaction", None
                    say("compaction", "begin", None)
                    index.flush()
                say(action, "end", change)


def _names(numbers: list[int]) -> list[str]:
    return [f"REQ-{number}" for number in numbers]


# -- damage ----------------------------------------------------------------------------------------


def damaged_library(folder: Path, size: int) -> Path:
    """A library to be damaged: with tags, identifiers, deletions, free pages and a cache."""
    path = folder / "library"
    texts = [formula(i) for i in range(size)]
    tags = [["even"] if i % 2 == 0 else ["odd", f"t{i % 5}"] for i in range(size)]
    with Index.build(
        texts, path, vectors=Hashed(64), tags=tags, requirements=[f"REQ-{i}" for i in range(size)]
    ) as index:
        index.add([formula(size + i) for i in range(size)])
        index.delete(range(size + 1, 2 * size - 20))
        index.delete([3, 5])
    return path


def _answers(path: Path) -> list[Any]:
    """Open a library and use all of it, then change it and use it again."""
    found: list[Any] = []
    with Index.open(path, vectors=Hashed(64)) as index:
        for _ in range(2):
            found.append(index.search([formula(7), formula(8)], ALL))
            found.append(index.search(formula(9), 7, tags="odd", variables="x_0", max_depth=3))
            found.append(len(index))
            found.append(index.add([formula(10**5), formula(10**5 + 1)], tags="odd"))
            index.delete(found[-1][0])
            index.flush()
    with Index.open(path, vectors=Hashed(64)) as index:
        found.append(index.search(formula(7), ALL))
    return found


def flips(folder: Path, n: int, seed: int = 0, size: int = 150) -> dict[str, Any]:
    """Flip n single bits: each must be noticed, or change no answer.

    A third is anywhere in the library's file, a third in its bytes that are not zero, a third in a
    library so large that it uses the approximate index (of which every tenth flip is in the cache).
    """
    path, chance = damaged_library(folder, size), random.Random(seed)
    counted: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for large in (False, True):
            patch.setattr(file, "MAX_EXACT", 0 if large else 10**9)
            with Index.open(path, vectors=Hashed(64)) as index:
                index.flush()
            files = [p for p in folder.iterdir() if p.is_file()]
            good = {each.name: each.read_bytes() for each in files}
            expected = _answers(path)
            for number in range(n - 2 * n // 3 if large else 2 * n // 3):
                name = "library.coarse" if large and number % 10 == 0 else "library"
                damaged = bytearray(good[name])
                place = chance.randrange(len(damaged))
                while number % 2 and not damaged[place]:
                    place = chance.randrange(len(damaged))
                damaged[place] ^= 1 << chance.randrange(8)
                content = good | {name: bytes(damaged)}
                try:
                    answers = _answers(_written(folder / "damaged", content))
                except rv.RhovecError:
                    counted["noticed"] += 1
                else:
                    assert answers == expected, f"byte {place} of {name}, unnoticed"
                    counted["harmless"] += 1
                try:
                    with Index.open(
                        _written(folder / "damaged", content), vectors=Hashed(64)
                    ) as index:
                        index.verify()
                except rv.RhovecError:
                    counted["noticed by opening or verify"] += 1
            for each, content in good.items():
                (folder / each).write_bytes(content)
    return {"flips": n, **counted, "unnoticed": 0, "bytes": path.stat().st_size}


def _written(folder: Path, files: dict[str, bytes]) -> Path:
    """The library in a folder that holds these files and no others."""
    folder.mkdir(exist_ok=True)
    for each in folder.iterdir():
        each.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / "library"


def cuts(folder: Path, size: int = 150, limit: int | None = None, seed: int = 0) -> dict[str, Any]:
    """Cut the file at every page, and somewhere in every page: opening it must notice."""
    path, chance = damaged_library(folder, size), random.Random(seed)
    content = path.read_bytes()
    places = list(range(0, len(content), rows.PAGE))
    places += [place + chance.randrange(1, rows.PAGE) for place in places]
    if limit is not None:
        places = [*chance.sample(places, limit - 1), len(content) - 4000]
    for place in places:
        path.write_bytes(content[:place])
        with pytest.raises(rv.RhovecError):
            Index.open(path, vectors=Hashed(64))
    return {"cuts": len(places), "noticed": len(places), "pages": len(content) // rows.PAGE}


# -- size ------------------------------------------------------------------------------------------


def million(folder: Path, n: int = 1_000_000, width: int = 32) -> dict[str, Any]:
    """Build, open, search, change and verify a library of n rows; seconds for each."""
    path, vectors = folder / "library", Random(width)
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        seconds[name] = round(time.perf_counter() - start, 4)
        return result

    index = timed("build", lambda: Index.build(map(formula, range(n)), path, vectors=vectors))
    index.close()
    index = timed("open", lambda: Index.open(path, vectors=vectors))
    point = vectors.draw(1)[0]
    timed("first search", lambda: index.search(point))
    times = []
    for _ in range(50):
        start = time.perf_counter()
        assert len(index.search(vectors.draw(1)[0])) == 10
        times.append(time.perf_counter() - start)
    seconds["search"] = round(float(np.median(times)), 4)
    (added,) = timed("add one", lambda: index.add([formula(n)]))
    timed("delete one", lambda: index.delete(added))
    timed("verify", index.verify)
    assert len(index) == n
    index.close()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with Index.open(path, vectors=vectors) as index, pytest.raises(rv.RhovecError):
        index.verify()
    return {"rows": n, "dimension": width, "bytes": len(damaged), "seconds": seconds}


class Random:
    """Random unit vectors, whatever the formula."""

    fingerprint = "random"

    def __init__(self, width: int):
        self.width, self.rng = width, np.random.default_rng(0)

    def draw(self, n: int) -> np.ndarray:
        vectors = self.rng.normal(size=(n, self.width)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed(self, formulae: list[Formula], /) -> np.ndarray:
        return self.draw(len(formulae))

    def kernel(self, n_traces: int | None = None, seed: int = 0) -> rv.StlKernel:
        return rv.StlKernel(n_traces=n_traces, seed=seed)


def lines(outcome: dict[str, Any]) -> Iterator[str]:
    """An outcome, readable."""
    for name, value in outcome.items():
        shown = (
            ", ".join(f"{k} {v:g}" for k, v in value.items()) if isinstance(value, dict) else value
        )
        yield f"{name}: {shown:,}" if isinstance(shown, int) else f"{name}: {shown}"
