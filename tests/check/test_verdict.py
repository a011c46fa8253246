"""Verdicts: equal to the oracle, and never contradicted by what may follow."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import rhovec as rv
from rhovec.check import Outcome, Sampled, verdicts
from rhovec.check.parts import parts
from rhovec.check.sampled import as_sampled
from rhovec.errors import RhovecError, TraceError
from rhovec.robustness import cpu
from rhovec.robustness.reference import robustness_trace, satisfaction_trace

from . import cases, oracle


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_are_those_of_the_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        phi, case = cases.random_formula(rng), cases.random_case(rng)
        verdict, judged = cases.judge(phi, case), cases.merged(phi)
        assert verdict.outcome == oracle.outcome(judged, case), (str(phi), case)
        expected = oracle.bounds(judged, case, boolean=False)[0]
        assert verdict.robustness == expected, (str(phi), case)


@pytest.mark.parametrize("seed", range(4))
def test_stretches_are_those_of_a_pointwise_evaluation(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    for _ in range(40):
        phi, case = cases.random_formula(rng), cases.random_case(rng)
        for found in cases.judge(phi, case).parts:
            part = found.part
            truth = oracle.bounds(part.body, case, boolean=True)
            met = oracle.bounds(part.body, case, boolean=True, so_far=True)
            last = case.points - 1 if part.hi < 0 else min(part.hi, case.points - 1)
            window = range(part.lo, last + 1)
            within = [(max(a, part.lo), b) for a, b in found.violated if a < case.points]
            assert times(within) == [t for t in window if not truth[t][1]]
            if found.outcome in (Outcome.OPEN, Outcome.VIOLATED):
                within = [(a, b) for a, b in found.open if a < case.points]
                expected = [t for t in window if truth[t][1] and not met[t][0]]
                assert times(within) == expected, (str(phi), case)


def times(stretches: list[tuple[int, int]]) -> list[int]:
    return [t for a, b in stretches for t in range(a, b + 1)]


def test_no_continuation_contradicts_a_verdict() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        phi, case = cases.random_formula(rng, depth=int(rng.integers(1, 4))), cases.random_case(rng)
        assert not cases.contradicted(rng, phi, case, 60), (str(phi), case)


def test_formulae_that_use_variables_once_are_judged_as_by_enumeration() -> None:
    rng = np.random.default_rng(0)
    found: dict[str, int] = {}
    for _ in range(150):
        phi = cases.small_formula(rng, ["x_0", "x_1"], once=True)
        case = cases.random_case(rng, longest=3, unknown=0.1)
        possible = cases.enumerated(phi, case, around=2)
        if possible is None:
            continue
        outcome = cases.judge(phi, case).outcome
        expected = {True: {"holds"}, False: {"violated"}}[possible.pop()] if len(possible) == 1 else {
            "open", "holds so far",
        }  # fmt: skip
        assert outcome in expected, (str(phi), case)
        found[outcome] = found.get(outcome, 0) + 1
    assert min(found.get(outcome, 0) for outcome in ("holds", "violated", "open")) > 10


def test_an_enumerated_continuation_never_contradicts() -> None:
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(150):
        phi = cases.small_formula(rng, ["x_0"], once=False)
        case = cases.random_case(rng, longest=4, unknown=0.1)
        possible = cases.enumerated(phi, case, around=3)
        outcome = cases.judge(phi, case).outcome
        if possible is not None and outcome in ("holds", "violated"):
            decided += 1
            assert possible == {outcome == "holds"}, (str(phi), case)
    assert decided > 30


def test_what_holding_says_stands_beside_it() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        phi, case = cases.random_formula(rng), cases.random_case(rng)
        held = {name: [held_samples(x)] for name, x in case.samples.items()}
        if any(math.isnan(x[0][0]) for x in held.values()):
            continue
        verdict = cases.judge(phi, case)
        traces = {name: np.array(x) for name, x in held.items()}
        assert verdict.held == robustness_trace(phi, traces)[0, 0]
        assert verdict.satisfied_held == satisfaction_trace(phi, traces)[0, 0]


def held_samples(samples: list[float]) -> list[float]:
    known = [x for x in samples if not math.isnan(x)]
    out = []
    last = known[0] if known else math.nan
    for x in samples:
        last = last if math.isnan(x) else x
        out.append(last)
    return out


def test_logs_together_are_judged_as_each_alone() -> None:
    rng = np.random.default_rng(3)
    formulae = [cases.random_formula(rng) for _ in range(12)]
    logs = [cases.random_case(rng, longest=40).samples for _ in range(60)]
    together = verdicts(formulae, logs, discrete=())
    for i, phi in enumerate(formulae):
        assert together[i] == [verdicts(phi, [log], discrete=())[0][0] for log in logs]


def test_parts_are_the_formula() -> None:
    rng = np.random.default_rng(4)
    traces = rng.choice(cases.LEVELS, (40, 3, 6))
    for _ in range(200):
        phi = cases.random_formula(rng, depth=3)
        assert np.array_equal(rv.robustness(phi, traces), rv.robustness(cases.merged(phi), traces))


def test_windows_of_always_are_merged_and_distributed() -> None:
    found = parts(rv.parse("p > 0 and always (q > 0 and not eventually[1,5] (r > 0 or s > 0))"))
    assert [(str(part.body), part.lo, part.hi) for part in found] == [
        ("p > 0", 0, 0), ("q > 0", 0, -1), ("r <= 0", 1, -1), ("s <= 0", 1, -1),
    ]  # fmt: skip


LOG = {
    "p": [0, 0, 1, 0, 0, 0, 0, 1, 0, 0],
    "q": [0, 0, 0, 0, 1, 0, 0, 0, 0, 0],
    "x": np.arange(10.0),
}


@pytest.mark.parametrize(
    ("text", "outcome", "margin", "since"),
    [
        ("always x < 10", "holds so far", 1, None),
        ("always x <= 9", "holds so far", 0, None),
        ("always x < 9", "violated", 0, 9),
        ("always[0,9] x < 10", "holds", 1, None),
        ("always[0,10] x < 10", "open", None, 10),
        ("always always[0,5] x < 10", "holds so far", 1, None),
        ("always[12,inf] x < 10", "open", None, 12),
        ("eventually x > 5", "holds", 4, None),
        ("eventually x > 10", "open", None, 0),
        ("eventually[0,9] x > 10", "violated", -1, 0),
        ("eventually always x > 5", "holds so far", 4, None),
        ("always (x > 5 -> always x > 4)", "holds so far", 1, None),
        ("always (p -> eventually[0,2] q)", "violated", -math.inf, 7),
        ("always (p -> eventually[0,3] q)", "open", None, 7),
        ("always (rise(p) -> eventually[0,9] q)", "open", None, 7),
        ("always historically x >= 0", "open", None, 0),
        ("always (x > 0 weak_until x > 12)", "violated", 0, 0),
        ("always[1,inf] (x > 0 weak_until x > 12)", "holds so far", 1, None),
        ("always prev prev x < 8", "violated", -1, 10),
        ("x >= 0 and always x < 10", "holds so far", 0, None),
        ("x >= 0 and eventually x > 10", "open", None, 0),
        ("p <-> x > 5", "holds", 5, None),
        ("true", "holds", math.inf, None),
        ("always false", "violated", -math.inf, 0),
    ],
)
def test_outcomes(text: str, outcome: str, margin: float | None, since: int | None) -> None:
    verdict = verdicts(text, [LOG])[0][0]
    assert (verdict.outcome, verdict.margin, verdict.since) == (outcome, margin, since)


def test_the_beginning_may_be_held() -> None:
    for begin, outcome in (("unknown", "open"), ("held", "holds so far")):
        (verdict,) = verdicts("always historically x >= 0", [LOG], begin=begin)[0]
        assert verdict.outcome == outcome


def test_a_gap_is_unknown() -> None:
    log = {"x": [1.0, math.nan, 3.0]}
    (verdict,) = verdicts("always x < 4", [log])[0]
    assert (verdict.outcome, verdict.since, verdict.held) == ("open", 1, 1.0)
    assert verdicts("always x < 3", [log])[0][0].outcome == "violated"
    assert verdicts("eventually x > 2", [log])[0][0].outcome == "holds"


def test_flags_have_no_margin() -> None:
    log = {"door": [0, 1, 0, 0], "speed": [9.0, 0.0, 3.0, 5.0]}
    text = "always (door -> speed < 2)"
    assert verdicts(text, [log])[0][0].margin == 2  # at sample 1; elsewhere the door is closed
    assert verdicts(text, [log], discrete=())[0][0].margin == 0.5
    assert verdicts("always speed >= 0.5", [log])[0][0].margin == -0.5  # not a flag
    gears = {"gear": [1, 2, 3, 3], "speed": [9.0, 20.0, 30.0, 49.0]}
    guard = rv.parse("always (gear == 3 -> speed < 50)", discrete=["gear"])
    assert verdicts(guard, [gears], discrete=["gear"])[0][0].margin == 1
    strict = rv.parse("always gear < 3")
    assert verdicts(strict, [gears], discrete=["gear"])[0][0].margin == -math.inf


def test_responses_are_counted() -> None:
    log = {
        "p": [0, 1, 1, 0, 0, 1, 0, 0, 1, 1],
        "q": [0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
    }
    for text in (
        "p -> eventually[0,2] q",
        "not p or eventually[0,2] q",
        "eventually[0,2] q or not p",
    ):
        (verdict,) = verdicts(f"always ({text})", [log])[0]
        assert verdict.deciding.answers == (3, 1, 1, 2), text
        assert verdict.deciding.answers.open == 1
        assert not verdict.vacuous
    (verdict,) = verdicts("always[0,4] (p -> eventually[0,2] q)", [log])[0]
    assert (verdict.outcome, verdict.deciding.answers) == ("holds", (1, 1, 0, 2))
    short = {"p": [1, 0], "q": [1, 0]}  # whatever comes after the end, there is no answer before 3
    (verdict,) = verdicts("always (p -> eventually[3,4] once q)", [short])[0]
    assert verdict.deciding.answers == (1, 1, 0, 3)
    (verdict,) = verdicts("always (p and q -> next q)", [log])[0]
    assert (verdict.outcome, verdict.vacuous) == ("holds so far", True)
    (verdict,) = verdicts("always (p or q)", [log])[0]
    assert verdict.deciding.answers is None and not verdict.vacuous


def test_answers_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        points, near, far = (int(rng.integers(*ends)) for ends in ((1, 20), (0, 3), (0, 4)))
        log = {name: (rng.random(points) < 0.4).astype(float) for name in "pq"}
        text = f"always (p -> eventually[{near},{near + far}] q)"
        answers = verdicts(text, [log])[0][0].deciding.answers
        assert answers is not None
        delays: list[int] = []
        stretches: list[list[str]] = []
        for t in range(points):
            if not log["p"][t]:
                continue
            window = range(t + near, t + near + far + 1)
            replies = [s - t for s in window if s < points and log["q"][s]]
            delays += replies[:1]
            state = "answered" if replies else "open" if window[-1] >= points else "violated"
            if t == 0 or not log["p"][t - 1]:
                stretches.append([])
            stretches[-1].append(state)
        assert answers.triggered == len(stretches)
        assert answers.answered == sum(set(each) == {"answered"} for each in stretches)
        assert answers.violated == sum("violated" in each for each in stretches)
        assert answers.slowest == max(delays, default=None)


def test_a_spike_between_samples_makes_a_verdict_depend_on_resampling() -> None:
    x = np.array([1.0, 2.0, 3.0, 2.0])
    log = Sampled({"x": x}, least={"x": x - 0.5}, greatest={"x": np.array([1.0, 2.0, 6.0, 2.0])})
    (verdict,) = verdicts("always x < 5", [log])[0]
    assert (verdict.outcome, verdict.margin) == ("holds so far", 2)
    assert verdict.depends_on_resampling
    assert (verdict.deciding.doubtful, verdict.deciding.doubt) == (((2, 2),), -1)
    (verdict,) = verdicts("always x < 7", [log])[0]
    assert (verdict.depends_on_resampling, verdict.deciding.doubt) == (False, 1)
    (verdict,) = verdicts("always x > 1", [log])[0]  # violated at sample 0, by no margin
    assert (verdict.outcome, verdict.depends_on_resampling) == ("violated", False)
    (verdict,) = verdicts("always x > 1.5", [log])[0]
    assert (verdict.outcome, verdict.depends_on_resampling) == ("violated", False)
    (verdict,) = verdicts("always x > 0.75", [log])[0]
    assert (verdict.outcome, verdict.depends_on_resampling) == ("holds so far", True)


def test_logs_on_a_grid_are_taken_as_they_are() -> None:
    values = np.array([[1.0, 2.0, math.nan], [0.0, 0.0, 1.0]])
    grid = SimpleNamespace(
        name="drive 7", dt=0.5, times=np.array([3.0, 3.5, 4.0]), variables=("x", "y"),
        values=values, least=values, greatest=np.array([[1.0, 4.0, math.nan], [0.0, 0.0, 1.0]]),
    )  # fmt: skip
    log = as_sampled(grid)
    assert (log.time(2), log.name, log.points) == (4.0, "drive 7", 3)
    assert list(log.samples) == ["x", "y"] and list(log.least) == list(log.greatest) == ["x"]
    (verdict,) = verdicts("always[0,1] x < 3", [grid])[0]
    assert (verdict.outcome, verdict.depends_on_resampling) == ("holds", True)


def test_samples_within_their_ranges_do_not_turn_a_verdict_that_does_not_depend_on_them() -> None:
    rng = np.random.default_rng(6)
    turned = kept = 0
    for _ in range(300):
        phi, case = cases.random_formula(rng), cases.random_case(rng)
        samples = {name: np.array(x) for name, x in case.samples.items()}
        least, greatest = (
            {name: x + sign * rng.choice([0, 0, 0.5, 1], len(x)) for name, x in samples.items()}
            for sign in (-1, 1)
        )
        log = Sampled(samples, least, greatest)
        others = [
            {name: rng.choice([least[name], greatest[name]]) for name in samples} for _ in range(5)
        ]
        uncertain = any((least[name] < greatest[name]).any() for name in phi.variables)
        verdict, *rest = verdicts(phi, [log, *others], begin=case.begin, discrete=())[0]
        if verdict.depends_on_resampling:
            turned += any(other.outcome != verdict.outcome for other in rest)
        elif uncertain and verdict.outcome != "open":
            kept += 1
            assert {other.outcome for other in rest} == {verdict.outcome}, (str(phi), case)
    assert turned > 10 and kept > 100


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ({"y": [1.0]}, "uses x, but the log has y"),
        ({"x": [1.0], "y": [1.0, 2.0]}, "y has the shape"),
        ({"x": []}, "no sample"),
        ({"x": [math.inf]}, "infinite"),
        ({"x": [[1.0]]}, "shape"),
        (np.zeros(3), "shape"),
        (Sampled({"x": np.zeros(2)}, least={"x": np.zeros(2)}), "but not both"),
        ({"x": [1e308, -1e308], "y": [1e308, 1e308]}, "scale them down"),
    ],
)
def test_logs_that_cannot_be_judged_are_refused(log: object, message: str) -> None:
    text = "always x > 0" if "down" not in message else "always 2 * x - 2 * y - 2 * prev x > 0"
    if isinstance(log, dict) and "y has" in message:
        text = "x > 0 and y > 0"
    with pytest.raises(TraceError, match=message):
        verdicts(text, [log])


def test_misuse_is_refused() -> None:
    with pytest.raises(RhovecError, match="begin must be"):
        verdicts("x > 0", [{"x": [1.0]}], begin="hold")
    with pytest.raises(RhovecError, match="no logs"):
        verdicts("x > 0", [])
    for log in ({"x": [1.0]}, Sampled({"x": np.ones(1)}), "log.csv", 3):
        with pytest.raises(RhovecError, match=r"write \[log\]"):
            verdicts("x > 0", log)  # type: ignore[arg-type]


def test_long_logs_are_cut_into_pieces_without_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bounds and explanations of random formulae, with pieces of eight samples and without."""
    rng = np.random.default_rng(5)
    found = []
    while len(found) < 60:
        phi = cases.random_formula(rng)
        log = {name: rng.normal(size=200).round(1) for name in phi.variables}
        for values in log.values():
            values[rng.uniform(size=200) < 0.05] = np.nan
        found.append((phi, log, rv.explain(phi, log)))
    pieces = []
    evaluate = cpu.evaluate
    monkeypatch.setattr(
        cpu, "evaluate", lambda *args, **kw: pieces.append(args[1].shape) or evaluate(*args, **kw)
    )
    monkeypatch.setattr("rhovec.check.bounds.LONG", 100)
    monkeypatch.setattr("rhovec.check.bounds.PIECE", 8)
    for phi, log, whole in found:
        again = rv.explain(phi, log)
        assert again.verdict == whole.verdict, phi
        assert again.path == whole.path and again.cause == whole.cause, phi
    assert sum(n > 10 for n, _, _ in pieces) > 50


def test_a_log_too_long_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rhovec.check.bounds.memory", lambda: 10**6)
    with pytest.raises(TraceError, match="give its operators bounds"):
        verdicts("always (x > 0 -> eventually x < 0)", [{"x": np.zeros(40_000)}])
    (verdict,) = verdicts("always (x > 0 -> eventually[0,5] x < 0)", [{"x": np.zeros(40_000)}])[0]
    assert verdict.outcome == "holds so far"
