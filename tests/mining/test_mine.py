"""`rv.mine`: what it finds, what it says of it, and inputs that have no answer."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.mining import Bounded, DecisionList, Mined, read_labelled

NAMES = ["speed", "pressure"]


def drives(
    seed: int = 0, n: int = 60, points: int = 30, flipped: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Traces that are good if the pressure stays above 4 in the second half."""
    rng = np.random.default_rng(seed)
    values = np.stack(
        [20 + 3 * rng.normal(size=(n, points)), 5 + 0.2 * rng.normal(size=(n, points))], 1
    )
    good = np.arange(n) % 2 == 0
    for i in np.flatnonzero(~good):
        at = int(rng.integers(points // 2, points))
        values[i, 1, at : at + 3] -= 3
    labels = good.copy()
    labels[rng.permutation(n)[:flipped]] ^= True
    return values, labels


def mined(*arguments: Any, **options: Any) -> Mined:
    found = rv.mine(*arguments, **{"variables": NAMES, "budget": 600, "max_size": 5, **options})
    assert isinstance(found, Mined)
    return found


def test_the_planted_requirement_is_found_with_names_and_seconds() -> None:
    values, good = drives()
    found = mined(values, good, dt=0.1, units={"pressure": "bar"})
    fresh, labels = drives(seed=1)
    assert (found.predict(fresh) == labels).all()
    assert found.formula.variables == ("pressure",)
    assert re.fullmatch(r"always\[[\d.]+,2\.9\] \( pressure >= [34](\.\d)? \)", found.text)
    assert found.entry.accuracy == 1 and found.entry.interval is not None
    assert found.entry.interval[0] > found.chance and found.beats_chance
    assert found.stopped == "no formula can do better"
    (certificate,) = found.certificates
    assert certificate.complete and certificate.loss == 0
    # What the text says is what the object does.
    again = rv.parse(found.text, dt=0.1)
    assert np.array_equal(rv.robustness(again, fresh, variables=NAMES), found.robustness(fresh))


def test_a_front_is_ordered_and_true() -> None:
    values, labels = drives(flipped=8)
    found = mined(values, labels)
    sizes = [one.size for one in found.front]
    wrong = [one.missed + one.alarms for one in found.front]
    assert sizes == sorted(set(sizes)) and wrong == sorted(set(wrong), reverse=True)
    for one in found.front:
        holds = rv.robustness(one.formula, values, variables=NAMES) >= 0
        assert ((labels & ~holds).sum(), (~labels & holds).sum()) == (one.missed, one.alarms)
        assert one.accuracy == (holds == labels).mean()
        assert one.size <= 5 and one.interval is not None and one.held_out is not None
        assert one.interval[0] <= one.held_out <= one.interval[1]
    clean = drives(flipped=0)[1]
    assert (found.predict(values) == clean).mean() > 0.95  # the noise was not learned
    for one in found.certificates:
        assert one.loss >= min(wrong) and one.loss == int(one.loss)


def test_one_seed_gives_one_answer_on_any_number_of_threads(monkeypatch: Any) -> None:
    values, labels = drives(flipped=8)
    before = mined(values, labels, seed=3)
    for name in ("rhovec.robustness.cpu", "rhovec.mining.scan"):
        monkeypatch.setattr(import_module(name), "cores", lambda: 5)
    after = mined(values, labels, seed=3)
    assert before.front == after.front and before.chosen == after.chosen
    assert before.evaluations == after.evaluations


def test_other_units_give_the_same_formulae_rescaled() -> None:
    values, labels = drives(flipped=8)
    factor, offset = np.array([1000.0, 0.01])[:, None], np.array([0.0, 7.0])[:, None]
    before, after = mined(values, labels), mined(values * factor + offset, labels)
    assert [one.size for one in before.front] == [one.size for one in after.front]
    for a, b in zip(before.front, after.front, strict=True):
        assert np.array_equal(a.formula.code, b.formula.code)
        assert (a.missed, a.alarms) == (b.missed, b.alarms)
    a, b = before.formula.rows()[0], after.formula.rows()[0]
    v = NAMES.index(str(a[3][0][0]))  # type: ignore[index]
    assert b[4] == pytest.approx(a[4] * factor[v, 0] + offset[v, 0], rel=2e-3)


def test_swapped_classes_give_the_negation() -> None:
    values, labels = drives(flipped=8)
    before, after = mined(values, labels), mined(values, ~labels)
    assert [(o.size, o.missed, o.alarms) for o in before.front[:2]] == [
        (o.size, o.alarms, o.missed) for o in after.front[:2]
    ]
    assert before.front[1].accuracy == after.front[1].accuracy


def test_shuffled_labels_give_chance() -> None:
    values, labels = drives(n=120)
    rng = np.random.default_rng(0)
    found = mined(values, rng.permutation(labels))
    assert found.entry.interval is not None and found.entry.interval[0] <= found.chance
    assert not found.beats_chance and "not above chance" in str(found)
    fresh, truth = drives(seed=5, n=400)
    assert abs((found.predict(fresh) == rng.permutation(truth)).mean() - 0.5) < 0.1


def test_costs_move_the_border() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 4 == 0
    values = (rng.normal(size=(200, 1, 3)) + labels[:, None, None]).round(2)
    plain, dear, balanced = (
        rv.mine(values, labels, costs=costs, budget=100, max_size=2).entry  # type: ignore[union-attr]
        for costs in (None, {True: 20.0}, "balanced")
    )
    assert dear.missed < balanced.missed <= plain.missed
    assert dear.alarms > balanced.alarms >= plain.alarms


@pytest.mark.parametrize("seed", range(4))
def test_what_earlier_rules_left_may_be_all_the_same(seed: int) -> None:
    traces = np.zeros((12, 1, 5))
    traces[:4] = np.random.default_rng(seed).normal(5, 1, (4, 1, 5))
    labels = [*"aaaabbbbcccc"]
    found = rv.mine(traces, labels, budget=300, folds=3, seed=seed)
    assert isinstance(found, DecisionList)
    assert found.classes == ["a", "b"] and found.predict(traces).tolist() == [*"aaaabbbbbbbb"]
    assert "no rule for 'c': the traces that earlier rules left are all the same" in found.notes
    with pytest.raises(RhovecError, match="all traces are the same"):
        rv.mine(np.tile(np.arange(5.0), (12, 1, 1)), labels, budget=300)


def test_several_classes_make_a_decision_list() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(90, 2, 20)) * 0.3
    labels = np.repeat(["calm", "early", "late"], 30)
    values[30:60, 0, 4:8] += 2
    values[60:, 1, 12:] += 2
    found = rv.mine(values, labels, budget=200)
    assert isinstance(found, DecisionList)
    assert (found.predict(values) == labels).all() and found.accuracy == 1
    assert len(found.rules) == 2 and found.wrong(values, labels) == []
    assert found.held_out == 1 and found.interval is not None and found.interval[0] > 0.9
    assert "held out 1.000 (95 %: 0.959-1.000)" in str(found)
    mixed = np.random.default_rng(1).permutation(labels)
    shuffled = rv.mine(values, mixed, budget=100, max_size=3)
    assert isinstance(shuffled, DecisionList) and shuffled.interval is not None
    assert shuffled.interval[0] <= shuffled.chance and "not above chance" in str(shuffled)
    again = rv.mine(values, labels, budget=0, start=found)
    assert isinstance(again, DecisionList) and again.accuracy == 1
    rho = found.robustness(values)
    assert ((rho >= 0).sum(axis=1) == 1).all()
    assert found.requirements().count("mined-") == 2
    (wrong,) = found.wrong(values[:1], ["late"])
    assert (wrong.label, wrong.predicted) == ("late", "calm") and wrong.why.verdict is not None


def test_examples_of_one_system_are_bounded() -> None:
    values, good = drives(n=400)
    values = values[good]  # 200
    found = rv.mine(values, variables=NAMES, budget=1000)
    assert isinstance(found, Bounded)
    assert found.n_structure == found.n_calibration == 100
    assert found.coverage == 100 / 101 and found.coverage_at(0.95) == pytest.approx(0.05**0.01)
    fresh, good = drives(seed=1, n=2000)
    assert found.predict(fresh[good]).mean() >= found.coverage_at(0.99)
    tight = [one.tightness for one in found.front]
    assert tight == sorted(set(tight))
    assert "probability at least 0.990" in str(found)


def test_coverage_holds_on_average() -> None:
    """The share of new traces that satisfy the formula, over many calibrations with n = 10."""
    rng = np.random.default_rng(0)
    shares = []
    for seed in range(30):
        values = rng.normal(size=(20, 1, 3))
        found = rv.mine(values, seed=seed, budget=50, max_size=2)
        shares.append(found.predict(rng.normal(size=(400, 1, 3))).mean())
    spread = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) > 10 / 11 - 3 * spread


def test_a_start_is_where_the_search_goes_on() -> None:
    values, labels = drives(flipped=8)
    first = mined(values, labels, budget=1000)
    more = drives(seed=9)
    both = np.concatenate([values, more[0]]), np.concatenate([labels, more[1]])
    again = mined(*both, budget=0, start=first)
    kept = [
        ((rv.robustness(one.formula, both[0], variables=NAMES) >= 0) != both[1]).sum()
        for one in first.front
    ]
    assert min(one.missed + one.alarms for one in again.front) <= min(kept)
    with pytest.raises(rv.RhovecError, match="start must be"):
        mined(values, labels, start=["x > 0"])


def test_wrong_traces_are_explained() -> None:
    values, labels = drives(flipped=4)
    found = mined(values, labels, max_size=2, dt=0.5)
    wrong = found.wrong(values, labels)
    assert [one.trace for one in wrong] == np.flatnonzero(found.predict(values) != labels).tolist()
    for one in wrong:
        assert (one.robustness >= 0) == one.predicted
        assert " s" in str(one.why) and "pressure" in str(one.why)


def test_a_file_reads_back() -> None:
    values, labels = drives(flipped=8)
    found = mined(values, labels, dt=0.1)
    (requirement,) = rv.formula.requirements.resolve(  # type: ignore[attr-defined]
        list(rv.formula.requirements.read_data(found.requirements("R1").encode(), "x")),
        dt=0.1,  # type: ignore[attr-defined]
    )[0]
    assert requirement.id == "R1" and requirement.formula == found.formula


def test_a_picture_shows_the_channels_of_the_formula() -> None:
    values, labels = drives()
    svg = mined(values, labels, dt=0.1, units={"pressure": "bar"}).svg(values, labels)
    assert svg.startswith("<svg xmlns=") and "pressure, bar" in svg and "speed" not in svg
    assert svg.count('class="curve"') == 60 and svg.count('class="limit"') == 1


# -- odd inputs ------------------------------------------------------------------------------------


def test_flags_do_not_shift() -> None:
    rng = np.random.default_rng(0)
    door = (rng.random((80, 1, 10)) < 0.1).astype(float)
    noise = rng.normal(size=(80, 1, 10))
    labels = ~door.any(axis=(1, 2))
    found = rv.mine(
        np.concatenate([door, noise], 1), labels, variables=["door", "noise"], budget=300
    )
    assert str(found.formula) == "always[0,9] ( door <= 0.5 )"
    assert (found.predict({"door": door[:, 0], "noise": noise[:, 0]}) == labels).all()


def test_flags_stay_flags_where_thresholds_shift() -> None:
    """A shift of all thresholds leaves the comparison of a flag where it is."""
    rng = np.random.default_rng(1)
    door = (rng.random((120, 1, 8)) < 0.3).astype(float)
    level = rng.normal(size=(120, 1, 8)) * 100
    labels = ((door < 0.5) | (level >= 20)).all(axis=(1, 2))  # always (door -> level >= 20)
    found = rv.mine(
        np.concatenate([door, level], 1),
        labels,
        variables=["door", "level"],
        budget=4000,
        max_size=4,
    )
    for one in found.front:
        for _, _, _, channel, threshold in one.formula.rows():
            assert channel != (("door", 1.0),) or threshold == 0.5
    assert found.front[-1].accuracy > 0.97 and "door" in found.front[-1].formula.variables


def test_constant_channels_are_left_out_and_named() -> None:
    values, labels = drives()
    still = np.concatenate([values, np.ones((60, 1, 30))], axis=1)
    found = mined(still, labels, variables=[*NAMES, "mode"])
    assert found.notes == ("left out, because constant: mode",)
    assert found.formula == mined(values, labels).formula
    with pytest.raises(rv.RhovecError, match="every channel is constant"):
        rv.mine(np.ones((10, 1, 5)), np.arange(10) % 2)


def test_contradictory_labels_are_counted() -> None:
    values, labels = drives()
    found = mined(np.concatenate([values, values[:3]]), np.concatenate([labels, ~labels[:3]]))
    assert any(note.startswith("6 traces occur with both labels") for note in found.notes)
    assert found.entry.accuracy == pytest.approx(60 / 63)
    with pytest.raises(rv.RhovecError, match="all traces are the same"):
        rv.mine(np.repeat(values[:1], 8, axis=0), np.arange(8) % 2 == 0)


def test_few_traces_have_wide_intervals() -> None:
    values, labels = drives(n=6)
    found = mined(values, labels)
    assert "6 traces are few" in found.notes[0]
    assert found.front[-1].accuracy == 1 and found.entry.interval is not None
    assert found.entry.interval[1] - found.entry.interval[0] > 0.3


def test_lengths_may_differ() -> None:
    values, labels = drives()
    cut = [trace[:, : 30 - i % 3] for i, trace in enumerate(values)]
    found = mined(cut, labels)
    assert "28 to 30 points" in found.notes[0]
    assert (found.predict(cut) == labels).mean() > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [True] * 59}, "60 traces, but 59 labels"),
        ({"labels": [None] * 60}, "label 0 is None"),
        ({"labels": [float("nan")] * 60}, "label 0 is nan"),
        ({"labels": [True] + [False] * 59}, "at least two traces of each class"),
        ({"labels": ["c", *["a", "b"] * 29, "a"]}, "of each class are needed; 'c' has 1"),
        ({"labels": [{1}] * 30 + [{2}] * 30}, "label 0 is {1}; give a text"),
        ({"costs": {True: "much"}}, "costs must be positive numbers"),
        ({"folds": 2.5}, "folds must be a whole number, not 2.5"),
        ({"budget": "many"}, "budget must be a whole number, not 'many'"),
        ({"seconds": "1"}, "seconds must be positive, not '1'"),
        ({"positive": "good"}, "no trace has the label 'good'; there are False, True"),
        ({"costs": {"good": 2}}, 'costs must be "balanced", or numbers by label'),
        ({"costs": {True: -1}}, "costs must be positive"),
        ({"max_size": 0}, "max_size must be from 1"),
        ({"budget": -1}, "budget must be"),
        ({"folds": 1}, "folds must be at least 2"),
        ({"seconds": 0.0}, "seconds must be positive"),
        ({"variables": ["speed"]}, "variables names 1"),
        ({"labels": None, "costs": "balanced"}, "costs and start go with"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str) -> None:
    values, labels = drives()
    options = {"variables": NAMES, **change}
    with pytest.raises(rv.RhovecError, match=re.escape(message)):
        rv.mine(values, options.pop("labels", labels), **options)


def test_nan_is_named() -> None:
    values, labels = drives()
    values[3, 1, 7] = np.nan
    with pytest.raises(rv.RhovecError, match="pressure of trace 3 is nan at point 7"):
        mined(values, labels)


def test_a_time_limit_stops_the_search() -> None:
    values, labels = drives(flipped=8)
    found = mined(values, labels, budget=10**7, max_size=9, seconds=1.0)
    assert found.stopped == "time limit" and found.seconds < 20
    assert "note: the time limit ended the search after" in str(found)
    noise = np.random.default_rng(0).normal(size=(60, 2, 30))  # no gap between the classes
    short = mined(noise, labels, max_size=2, budget=0, seconds=1e-6)
    assert "the time limit left windows and thresholds where the search found them" in str(short)
    assert not mined(noise, labels, max_size=2, budget=0).notes


def test_labels_of_different_types_stay_what_they_are() -> None:
    """NumPy made texts of the numbers, so that every trace of label 1 counted as wrong."""
    values = np.random.default_rng(0).normal(size=(12, 1, 8)).cumsum(axis=2)
    values[4:8] += 20
    values[8:] -= 20
    labels = [1] * 4 + ["b"] * 4 + [2.5] * 4
    two = rv.mine(values[:8], labels[:8], budget=50)
    assert two.predict(values[:8]).tolist() == labels[:8] and not two.wrong(values[:8], labels[:8])
    several = rv.mine(values, labels, budget=50)
    assert several.accuracy == 1 and several.predict(values).tolist() == labels


def test_a_small_class_does_not_end_a_decision_list() -> None:
    """Of a class of two traces one is left out in turn, and there is no rule for the other."""
    values = np.random.default_rng(0).normal(size=(10, 1, 6)).cumsum(axis=2)
    found = rv.mine(values, list("aaaabbbbcc"), budget=50)
    assert found.held_out is not None and len(found.rules) == 2


def test_flags_that_no_until_tells_apart() -> None:
    """The scan of until found nothing on its grid, and the answer was that all traces are the same."""
    rng = np.random.default_rng(8)
    values = (rng.normal(size=(18, 1, 3)).cumsum(axis=2) > 0).astype(float)
    found = mined(values, rng.random(18) < 0.5, variables=["flag"], budget=50)
    assert found.front[0].accuracy > 0.6


def test_a_certificate_is_about_formulae_that_tell_traces_apart() -> None:
    """Naming the larger class always has loss 2 here, and every other comparison 3 or more."""
    values = np.arange(1.0, 11).reshape(10, 1, 1)
    found = mined(values, [5 != i != 4 for i in range(10)], variables=["x"], budget=0)
    (certificate, *_) = found.certificates
    assert certificate.loss == 3
    assert "true on some traces and false on others" in str(found)


def test_a_start_that_the_search_does_not_know_is_named() -> None:
    values, labels = drives()
    start = [rv.parse("always rpm > 3"), rv.parse("always speed > 3")]
    found = mined(values, labels, start=start, budget=0)
    assert "1 of 2 formulae to start from were left out" in str(found)


def test_uneven_files_are_put_on_a_grid(tmp_path: Path) -> None:
    """Jitter in time, empty cells, a text column and a label in every row."""
    rng = np.random.default_rng(0)
    lines = ["run;Time (s);pressure;speed;gear;verdict"]
    for run in range(12):
        for step in range(20):
            time = step / 10 + (0.004 * rng.random() if step else 0)
            low = run % 2 and 8 <= step < 14
            pressure = "" if step in (0, 5, 19) else f"{(2 if low else 5) + 0.1 * rng.normal():.3f}"
            verdict = "fail" if run % 2 else "pass"
            lines.append(
                f"{run};{time:.4f};{pressure};{20 + rng.normal():.2f};D{step % 2};{verdict}"
            )
    file = tmp_path / "runs.csv"
    file.write_text("\n".join(lines))
    reading = {"id_column": "run", "time_column": "Time"}
    with pytest.raises(rv.RhovecError):
        read_labelled(file, "verdict", **reading)
    traces, labels = read_labelled(file, "verdict", dt=0.1, **reading)
    assert traces.variables == ("pressure", "speed") and traces.dt == 0.1
    assert all(np.isfinite(one).all() for one in traces.values)
    found = rv.mine(traces, labels, positive="pass", budget=100)
    assert isinstance(found, Mined) and found.formula.variables == ("pressure",)
    assert found.entry.accuracy == 1
