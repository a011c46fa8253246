"""Exact spaces of systems: how exact, how fast, and how well vectors are decoded.

python benchmarks/space.py                                      three systems of the test bed
python benchmarks/space.py --traces naval.npz --decoded 0       traces of a file, half of them held out
python benchmarks/space.py --systems sir-like --decoded 50

A space is fitted on traces of a system. 2,000 formulae that were not used for that, half of them random,
half drawn as requirements, give the error of K against the exact kernel on the same traces, and on other
traces of the system. Then vectors of formulae are decoded, none left out; answers are judged by the
cosine of robustness on other traces, and on traces of a class of inputs that the space has not seen.
Beside it the shipped decoder, which sees the same formulae lowered by the space's scales.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rhovec as rv
from common import RESULTS, ROOT, command, head, save, table
from rhovec import machine
from rhovec.evaluation.speed import timed
from rhovec.formula.programs import Programs
from rhovec.spaces.decoding import Decoder
from rhovec.spaces.fitting import distinct, draw_formulae
from rhovec.spaces.scales import ScaledKernel, Scales

sys.path.insert(0, str(ROOT))

UNSEEN, UNSEEN_SEED = 2000, 77
TIMED = 100  # requests of the timed decoding
QUARTILES = (0.25, 0.5, 0.75)


class Case(NamedTuple):
    """Traces of a system: to fit, held out, and of another class of inputs if there are any."""

    name: str
    variables: tuple[str, ...]
    options: dict[str, Any]
    fit: np.ndarray
    held_out: np.ndarray
    other: np.ndarray | None
    requirements: dict[str, str]


def from_file(path: Path) -> Case:
    """Every other trace of an .npz file (signals, variables, dt) is held out."""
    with np.load(path, allow_pickle=False) as stored:
        values, names = stored["signals"], tuple(map(str, stored["variables"]))
    return Case(path.stem, names, {}, values[::2], values[1::2], None, {})


def from_bed(name: str, n: int, seed: int) -> Case:
    from reproduction.systems import SYSTEMS

    system = SYSTEMS[name]
    options = {"dt": system.dt, "discrete": system.discrete, "units": system.units, "tolerance": 1}
    return Case(
        name, system.variables, options, system.traces(n, seed), system.traces(n, seed + 1),
        system.traces(n, seed + 2, "test"), {one.id: one.text for one in system.requirements},
    )  # fmt: skip


def unseen(space: rv.Space, n: int, seed: int) -> list[rv.Formula]:
    """n formulae in the user's units, half random, half drawn as requirements."""
    names, decoder = space.scales.variables, Decoder(space.scales, np.zeros((0, 4)))
    random = Programs.pack(rv.random_formulae(n, seed, len(names)))
    channels = tuple(((names[int(terms[0][0][2:])], 1.0),) for terms in random.channels)
    renamed = Programs(random.code, random.thresholds, random.offsets, channels)
    drawn = draw_formulae(space.scales, n, seed)
    both = [distinct(each, space.scales, False) for each in (renamed, drawn)]
    half = [part.part(0, n // 2).unpack() for part in both]
    return [decoder.lift(phi) for phi in (*half[0], *half[1])]


def cosines(
    space: rv.Space, traces: np.ndarray, first: list[rv.Formula], second: list[rv.Formula]
) -> np.ndarray:
    """Cosine of the robustness of each pair on traces, with channels in the space's standard deviations;
    0 where a robustness is zero on all traces."""
    scales = Scales.of(traces, space.schema)
    rows = [
        rv.robustness(
            scales.lower(Programs.pack(each)), scales.values, variables=scales.variables
        ).astype(np.float64)
        for each in (first, second)
    ]
    a, b = (each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in rows)
    return np.asarray((a * b).sum(axis=1))


def exactness(case: Case, space: rv.Space, fit_s: float, seed: int) -> dict[str, Any]:
    formulae = unseen(space, UNSEEN, seed + UNSEEN_SEED)
    upper = np.triu_indices(len(formulae), 1)
    near = space.similarity(formulae, formulae, warn=False)[upper]
    exact = space.kernel().gram(formulae)[upper]
    scales = Scales.of(case.held_out, space.schema)
    other = ScaledKernel(scales.measure, sigma2=space.sigma2, scales=scales).gram(formulae)[upper]
    speed = timed(lambda: space.embed(formulae, warn=False), 5)
    with tempfile.TemporaryDirectory() as folder:
        space.save(folder)
        again = rv.load(folder)
        same = (
            again.embed(formulae, warn=False).tobytes()
            == space.embed(formulae, warn=False).tobytes()
        )
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    n, variables, points = space.scales.values.shape
    return {
        "traces": n, "variables": variables, "points": points, "directions": space.dimension,
        "n": len(formulae), "mean K": float(exact.mean()), "error": float(abs(near - exact).mean()),
        "error, held out": float(abs(near - other).mean()),
        "error, held out, without the cut": float(abs(exact - other).mean()),
        "stated error": space.error, "stated standard error": space.standard_error,
        "residual": np.quantile(space.residual(formulae), (0.5, 0.95)).tolist(),
        "fit_s": fit_s, "formulae_per_s": len(formulae) / speed["s"], "same bytes": same,
        "megabytes": size / 1e6,
    }  # fmt: skip


def decoding(case: Case, space: rv.Space, n: int, seed: int) -> dict[str, Any]:
    requests = unseen(space, n, seed + UNSEEN_SEED + 1)
    vectors = space.embed(requests, warn=False)
    begin = time.perf_counter()
    space.decode(vectors[:TIMED], k=1)
    first = time.perf_counter() - begin  # with the bank
    begin = time.perf_counter()
    fronts = space.front(vectors)
    seconds = time.perf_counter() - begin
    ways = {"space": [group[-1].formula for group in fronts]}
    shipped = shipped_answers(space, requests)
    if shipped:
        ways["shipped decoder"] = shipped
    out: dict[str, Any] = {
        "n": len(requests), "seconds, first 100": first,
        "seconds per 100": 100 * seconds / len(requests),
        "nodes of the formula": float(np.median([phi.size for phi in requests])),
        "answers per front": float(np.mean([len(group) for group in fronts])),
    }  # fmt: skip
    for way, answers in ways.items():
        out[way] = judged(case, space, requests, answers)
    return out


def shipped_answers(space: rv.Space, requests: list[rv.Formula]) -> list[rv.Formula]:
    """The shipped decoder's, in the units of the space; none if the space has too many channels."""
    model, schema = rv.load(), rv.Schema(space.schema.channels)
    if len(schema.channels) > model.encoder.channels:
        return []
    lowered = [schema.lower(phi) for phi in requests]
    found = model.decode(model.embed(lowered, warn=False), k=1, schema=schema)
    return [group[0] for group in found]


def judged(
    case: Case, space: rv.Space, requests: list[rv.Formula], answers: list[rv.Formula]
) -> dict[str, Any]:
    """Quartiles of the cosines on each kind of traces, and the median size of the answers."""
    rows = {"fit": case.fit, "held out": case.held_out, "other inputs": case.other}
    out: dict[str, Any] = {
        name: np.quantile(cosines(space, traces, requests, answers), QUARTILES).tolist()
        for name, traces in rows.items()
        if traces is not None
    }
    return out | {"nodes": float(np.median([phi.size for phi in answers]))}


def published(case: Case, space: rv.Space, decoder: Any) -> list[dict[str, Any]]:
    """Published requirements, decoded: similarity, and how often the verdicts agree.

    decoder: the space itself, or a model of the same system.
    """
    out = []
    for name, text in case.requirements.items():
        phi = space.parse(text)
        try:
            (answer,) = decoder.decode(decoder.embed(phi, warn=False), k=1)
        except rv.RhovecError as error:
            out.append({"id": name, "formula": text, "refused": str(error)})
            continue
        both = rv.satisfaction([phi, answer], case.held_out, variables=case.variables)
        cosine = cosines(space, case.held_out, [phi], [answer])[0]
        out.append({
            "id": name, "formula": text, "answer": answer.to_text(dt=space.schema.dt),
            "cosine": float(cosine), "holds": float(both[0].mean()),
            "same verdict": float((both[0] == both[1]).mean()),
            "nodes": [phi.size, answer.size],
        })  # fmt: skip
    return out


def report(facts: dict[str, Any]) -> str:
    cases = facts["cases"]
    heads = ("system", "traces", "directions", "error of K", "held out", "held out, without the cut",
             "mean K", "fit, s", "formulae/s", "MB", "same bytes")  # fmt: skip
    rows = []
    for name, case in cases.items():
        e = case["exact"]
        rows.append([
            name, f"{e['traces']} of {e['variables']} × {e['points']}", str(e["directions"]),
            f"{e['error']:.5f}", f"{e['error, held out']:.4f}",
            f"{e['error, held out, without the cut']:.4f}", f"{e['mean K']:.3f}", f"{e['fit_s']:.1f}",
            f"{e['formulae_per_s']:,.0f}", f"{e['megabytes']:.1f}", "yes" if e["same bytes"] else "NO",
        ])  # fmt: skip
    lines = [
        "# Exact spaces of systems", "", head(facts), "",
        f"{UNSEEN} formulae that were not used in fitting, half random, half drawn as requirements; "
        "mean absolute errors over all pairs. Error of K: against the exact kernel on the same traces. "
        "Held out: against the kernel on other traces of the system, which is the error of having no "
        "more traces, with and without the cut. Formulae/s: `space.embed` of Formula objects.",
        "", *table(heads, rows),
    ]  # fmt: skip
    decoded = {name: case["decoded"] for name, case in cases.items() if "decoded" in case}
    if decoded:
        heads = ("system, way", "n", "held out", "other inputs", "same traces", "nodes, in and out",
                 "answers per front", "seconds per 100", "first 100")  # fmt: skip
        rows = []
        for name, d in decoded.items():
            for way in ("space", "shipped decoder"):
                if way in d:
                    own = way == "space"
                    rows.append([
                        f"{name}, {way}", str(d["n"]),
                        *(quartiles(d[way].get(k)) for k in ("held out", "other inputs", "fit")),
                        f"{d['nodes of the formula']:g}, {d[way]['nodes']:g}",
                        f"{d['answers per front']:.1f}" if own else "",
                        f"{d['seconds per 100']:.1f}" if own else "",
                        f"{d['seconds, first 100']:.1f}" if own else "",
                    ])  # fmt: skip
        lines += [
            "", "## From vectors to formulae", "",
            "Cosine of robustness of formula and answer: median, quartiles in brackets; none left out. "
            "Other inputs: traces of a class of inputs that the space has not seen. The first 100 "
            "include the bank, which is drawn and evaluated once per process.",
            "", *table(heads, rows),
        ]  # fmt: skip
    for name, case in cases.items():
        if case.get("published"):
            lines += [
                "",
                f"## Published requirements, {name}",
                "",
                *published_table(case["published"]),
            ]
    return "\n".join([*lines, ""])


def published_table(found: list[dict[str, Any]]) -> list[str]:
    rows = [
        [p["id"], f"`{p['formula']}`", f"`{p['answer']}`" if "answer" in p else p["refused"],
         *([f"{p['cosine']:.4f}", f"{p['holds']:.2f}", f"{p['same verdict']:.3f}",
            f"{p['nodes'][0]}, {p['nodes'][1]}"] if "answer" in p else [""] * 4)]
        for p in found
    ]  # fmt: skip
    heads = ("", "requirement", "answer to its vector", "cosine, held out", "holds",
             "same verdict, held out", "nodes")  # fmt: skip
    return table(heads, [[cell.replace("|", "\\|") for cell in row] for row in rows])


def quartiles(values: list[float] | None) -> str:
    return "" if values is None else f"{values[1]:.4f} [{values[0]:.4f}, {values[2]:.4f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Exact spaces: error, speed, decoding.")
    parser.add_argument("--traces", type=Path, nargs="*", default=[], help=".npz files of traces")
    parser.add_argument("--systems", nargs="*", help="systems of the test bed")
    parser.add_argument("--n-traces", type=int, default=2000, help="of a system of the test bed")
    parser.add_argument("--decoded", type=int, default=300, help="vectors to decode; 0: none")
    parser.add_argument("--error", type=float, default=0.001, help="of the space")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="space", help="of the record")
    parser.add_argument("--output", type=Path, default=RESULTS, help="a folder")
    given = parser.parse_args()
    systems = given.systems
    if systems is None:
        systems = [] if given.traces else ["unicycle-like", "transmission-like", "sir-like"]
    typed = command()
    for path in given.traces:
        typed = typed.replace(str(path), path.name)
    facts: dict[str, Any] = {
        "command": typed, "seed": given.seed, "machine": machine.facts(), "cases": {},
    }  # fmt: skip
    rv.Space.fit(np.random.default_rng(0).normal(size=(40, 1, 5)))  # compiled code is loaded now
    cases = [
        *map(from_file, given.traces),
        *(from_bed(name, given.n_traces, given.seed) for name in systems),
    ]
    for case in cases:
        begin = time.perf_counter()
        space = rv.Space.fit(
            case.fit, case.variables, error=given.error, seed=given.seed, **case.options
        )
        fit_s = time.perf_counter() - begin
        found = facts["cases"][case.name] = {"exact": exactness(case, space, fit_s, given.seed)}
        if given.decoded:
            found["decoded"] = decoding(case, space, given.decoded, given.seed)
            found["published"] = published(case, space, space)
        print(case.name, found, flush=True)
    save(given.name, facts, report(facts), given.output)


if __name__ == "__main__":
    main()
