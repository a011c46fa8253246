"""Planted violations, found all the way from files to rows; files that are wrong; options."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from rhovec.check import Outcome, Report, Row, check_files, check_logs, plan_of, report_of
from rhovec.check.report import _tasks
from rhovec.check.verdict import runs
from rhovec.errors import RequirementError, RhovecError

from ..planted import DT, MAX_GAP, REQUIREMENTS, Planted, Truth, make_logs

N_LOGS = 48  # all kinds, separators, layouts and units; the soak test has 300
NAMES = ("SPEED", "BRAKE", "REVERSE", "HEAT", "POWER")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Truth]]:
    folder = tmp_path_factory.mktemp("planted")
    (folder / "requirements.stl").write_text(REQUIREMENTS)
    (folder / "logs").mkdir()
    return folder, make_logs(folder / "logs", N_LOGS)


@pytest.fixture(scope="module")
def report(planted: tuple[Path, list[Truth]]) -> Report:
    folder, _ = planted
    return check_logs(
        folder / "requirements.stl", folder / "logs", resample=DT, max_gap=MAX_GAP, figures=True
    )


# -- planted violations ----------------------------------------------------------------------------


def test_every_planted_violation_is_found_and_no_other(
    report: Report, planted: tuple[Path, list[Truth]]
) -> None:
    check_planted(report, planted[1])


def check_planted(report: Report, truths: list[Truth]) -> None:
    """Outcomes, stretches and margins: those of the oracle on the grid, where they were planted."""
    rows = {(row.requirement, row.trace): row for row in report.rows}
    assert len(rows) == len(truths) * len(NAMES)
    assert report.unread == ()
    for truth in truths:
        expected = {one.requirement: one for one in truth.planted}
        for name in NAMES:
            row, one = rows[name, truth.name], expected.get(name)
            where = f"{name} on {truth.name}: {row}"
            is_spike = one is not None and one.outcome == "spike"
            assert row.verdict == ("holds so far" if one is None or is_spike else one.outcome), (
                where
            )
            assert row.depends_on_resampling == is_spike, where
            if one is None:
                assert row.intervals == (), where
                continue
            check_place(row, one, truth.gap, DT + sampling(truth, name, one), where)
            if one.outcome == "violated":
                grid, body = body_on_grid(truth, one)
                spans = [(grid[i], grid[j]) for i, j in runs(body < 0)]
                assert np.array(row.intervals) == pytest.approx(np.array(spans), abs=1e-6), where
                assert row.robustness == pytest.approx(body.min(), rel=1e-6, abs=1e-6), where


def check_place(
    row: Row, one: Planted, gap: tuple[float, float] | None, close: float, where: str
) -> None:
    """close: how far a stretch on the grid may be from what was planted, or from a gap."""
    spans = list(row.doubtful if one.outcome == "spike" else row.intervals)
    if one.outcome == "open" and gap is not None and gap != (one.start, one.end):
        assert spans.pop(0) == pytest.approx(gap, abs=close + 1e-6), where
    assert abs(spans[0][0] - one.start) <= close + 1e-6, where
    assert abs(spans[-1][1] - one.end) <= close + 1e-6, where
    if one.outcome == "spike":
        assert row.doubt == pytest.approx(-one.margin, abs=1e-6), where
    if one.outcome == "open":
        assert row.robustness is None and row.since == row.intervals[0][0], where


def sampling(truth: Truth, requirement: str, one: Planted) -> float:
    """The longest time between samples of the channel there: rates and products are known at those."""
    if requirement not in ("HEAT", "POWER") or one.outcome != "violated":
        return 0.0
    times = truth.times[truth.sampled["temp" if requirement == "HEAT" else "torque"]]
    near = times[(times > one.start - 2) & (times < one.end + 2)]
    return float(np.diff(near).max())


def body_on_grid(truth: Truth, one: Planted) -> tuple[np.ndarray, np.ndarray]:
    """The robustness of a requirement's body around a planted violation, by definition: the times, and
    the values there, from interpolated samples and loops over times."""
    grid = truth.times[0] + DT * np.arange(int((truth.times[-1] - truth.times[0]) / DT + 1e-9) + 1)
    grid = grid[(grid > one.start - 1) & (grid < one.end + 3)]

    def samples(name: str) -> tuple[np.ndarray, np.ndarray]:
        times = truth.times[truth.sampled[name]]
        return times, truth.signals[name].at(times)

    def on_grid(name: str) -> np.ndarray:
        return np.interp(grid, *samples(name))

    def held(name: str) -> np.ndarray:
        times, values = samples(name)
        return values[np.searchsorted(times, grid + 1e-9, side="right") - 1]

    if one.requirement == "SPEED":
        return grid, 120 - on_grid("speed")
    if one.requirement == "REVERSE":
        reverse = held("gear") == truth.labels.index("R")
        return grid, np.where(reverse, 10 - on_grid("speed"), np.inf)
    if one.requirement == "BRAKE":
        pressure, steps = on_grid("pressure"), round(2 / DT)
        best = [(pressure[t : t + steps + 1] - 20).max() for t in range(len(grid))]
        return grid, np.where(held("brake") > 0, best, np.inf)
    if one.requirement == "HEAT":
        times, values = samples("temp")
        rates = np.diff(values) / np.diff(times)
        return grid, 2 - np.interp(grid, times, [rates[0], *rates])
    either = truth.times[truth.sampled["torque"] | truth.sampled["speed"]]
    power = np.interp(either, *samples("torque")) * np.interp(either, *samples("speed"))
    return grid, 20_000 - np.interp(grid, either, power)


def test_flags_and_modes_do_not_cap_margins(report: Report) -> None:
    found = [row for row in report.rows if row.verdict == Outcome.VIOLATED]
    assert {row.requirement for row in found} == set(NAMES)
    assert max(abs(row.robustness or 0) for row in found if row.requirement == "BRAKE") > 10


def test_rows_have_words_and_pictures(report: Report) -> None:
    for row in report.rows:
        if row.verdict == Outcome.VIOLATED:
            assert row.explanation.startswith("violated")
            assert row.figure is not None and row.figure.violated == row.intervals
            assert row.figure.start <= row.since <= row.figure.end
            assert np.nanmin(row.figure.robustness.least) == pytest.approx(row.robustness, rel=1e-5)
        else:
            assert row.figure is None
    assert any('gear == "R" is unknown' in row.explanation for row in report.of(Outcome.OPEN))
    assert any(row.unit == "km/h" for row in report.rows)


def test_worst_is_ranked_by_the_scale_of_the_channel(report: Report) -> None:
    worst = report.worst()
    severities = [report.severity(row) for row in worst]
    assert len(worst) == 10 and severities == sorted(severities, reverse=True)
    # A power of 20,000 is violated by hundreds, yet that is little beside its own spread.
    assert worst[0].requirement != "POWER"
    everything = max(-row.robustness for row in report.rows if row.verdict == Outcome.VIOLATED)
    assert everything > -worst[0].robustness


def test_processes_and_grouping_change_nothing(
    report: Report, planted: tuple[Path, list[Truth]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = planted
    monkeypatch.setattr("rhovec.check.report.MIN_PARALLEL_BYTES", 0)
    several = check_logs(
        folder / "requirements.stl", folder / "logs", resample=DT, max_gap=MAX_GAP, workers=2
    )
    assert [row.record() for row in several.rows] == [row.record() for row in report.rows]
    assert several.traces == report.traces and several.made == report.made
    assert several.scales == pytest.approx(report.scales)


def test_a_file_is_checked_by_a_function_that_can_travel(
    report: Report, planted: tuple[Path, list[Truth]]
) -> None:
    folder, truths = planted
    plan, requirements = plan_of(folder / "requirements.stl", resample=DT, max_gap=MAX_GAP)
    work = (plan, [(truths[3].name, str(truths[3].path))], False)
    found = check_files(*pickle.loads(pickle.dumps(work)))
    rows = report_of(plan, requirements, pickle.loads(pickle.dumps(found))).rows
    alike = [row.record() for row in report.rows if row.trace == truths[3].name]
    assert [row.record() for row in rows] == alike


def test_tasks_are_small_enough_for_memory_and_for_workers() -> None:
    files = [(str(i), str(i)) for i in range(30)]
    assert [len(t) for t in _tasks(files, [1] * 30, 1)] == [12, 12, 6]
    assert [len(t) for t in _tasks(files, [1] * 30, 10)] == [3] * 10
    large = [1, 1, 10**9, 10**9, 1]
    assert [len(t) for t in _tasks(files[:5], large, 1)] == [2, 1, 1, 1]


# -- logs as they are ------------------------------------------------------------------------------


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def outcomes(report: Report) -> dict[tuple[str, str], str]:
    return {(row.requirement, row.trace): str(row.verdict) for row in report.rows}


def test_units_of_each_log_count(tmp_path: Path) -> None:
    """The same limit on logs in km/h and in m/s."""
    write(
        tmp_path,
        r_stl="LIMIT: always speed <= 36 km/h\n",
        a_csv="time,speed [km/h]\n0,30\n1,37\n",
        b_csv="time,speed (m/s)\n0,9\n1,9.5\n",
        c_csv="time,speed (m/s)\n0,9\n1,10.5\n",
    )
    report = check_logs(tmp_path / "r.stl", [tmp_path / f"{n}.csv" for n in "abc"])
    assert [row.robustness for row in report.rows] == pytest.approx([-1, 0.5, -0.5])
    assert [row.unit for row in report.rows] == ["km/h", "m/s", "m/s"]


@pytest.mark.parametrize(
    ("header", "text", "margin"),
    [
        ("n [U/min]", "n < 4000 rpm", -1000),
        ("n [U/min]", "n < 100 Hz", 1000),
        ("n [1/min]", "n < 4000 U/min", -1000),
        ("n (rpm)", "n < 4000 1/min", -1000),
        ("M [Nm]", "M < 4 kN*m", -1000),
        ("v [km/h]", "v < 1000 m/s", -1400),
        ("T [°C]", "T < 4273.15 K", -1000),
        ("p [mbar]", "p < 4 bar", -1000),
        ("a [m/s2]", "a < 4 km/s^2", -1000),
        ("P [W]", "P < 4 kW", -1000),
        ("x [%]", "x < 4000 %", -1000),
        ("Q [m³/h]", "Q < 1000 l/s", -1400),
    ],
)
def test_units_in_headers_as_they_are_written(
    tmp_path: Path, header: str, text: str, margin: float
) -> None:
    write(tmp_path, r_stl=f"A: always {text}\n", a_csv=f"Zeit [s];{header}\n0;3000\n1;5000,0\n")
    report = check_logs(tmp_path / "r.stl", tmp_path / "a.csv", time_column="Zeit")
    assert not report.unread
    assert report.rows[0].robustness == pytest.approx(margin)


@pytest.mark.parametrize(
    ("header", "values", "text", "margin"),
    [
        ("s [km/h]", "10,20", "rate(s) < 3 m/s^2", 0.8),
        ("w [1/min]", "10,20", "rate(w) < 2 Hz/s", 110),
        ("r [rpm],m [Nm]", "1000,1 2000,2", "r * m < 1 kW", 5549.296585513721),
        ("r [U/min],m [N*m]", "1000,1 2000,2", "r * m < 1 kW", 5549.296585513721),
    ],
)
def test_units_of_channels_that_only_rates_and_products_use(
    tmp_path: Path, header: str, values: str, text: str, margin: float
) -> None:
    cells = values.split() if "," in header else values.split(",")
    rows = "\n".join(f"{i},{cell}" for i, cell in enumerate(cells))
    write(tmp_path, r_stl=f"A: always {text}\n", a_csv=f"time,{header}\n{rows}\n")
    report = check_logs(tmp_path / "r.stl", tmp_path / "a.csv")
    assert not report.unread
    assert report.rows[0].robustness == pytest.approx(margin)


@pytest.mark.parametrize("text", ["v > w", "rate(v - w) > 3", "(v - w) * w > 3"])
def test_channels_of_different_units_are_not_compared(tmp_path: Path, text: str) -> None:
    write(
        tmp_path,
        r_stl=f"A: always {text}\nB: always v > 3\n",
        a_csv="time,v [m/s],w [km/h]\n0,10,20\n1,10,20\n",
    )
    report = check_logs(tmp_path / "r.stl", tmp_path / "a.csv")
    assert outcomes(report) == {("B", "a"): "holds so far"} and report.status() == 2
    assert "v is in m/s and w in km/h" in report.unread[0].message


def test_bounds_are_seconds_of_each_log_without_resampling(tmp_path: Path) -> None:
    rows = "\n".join(f"{i / 10},{int(i != 5)}" for i in range(20))
    coarse = "\n".join(f"{i / 2},{int(i != 1)}" for i in range(6))
    write(
        tmp_path,
        r_stl="HOLD: always[0, 0.4] x > 0.5\n",
        fine_csv=f"time,x\n{rows}\n",
        coarse_csv=f"time,x\n{coarse}\n",
    )
    report = check_logs(tmp_path / "r.stl", tmp_path)
    assert outcomes(report) == {("HOLD", "fine"): "holds"}
    ((file, message),) = report.unread
    assert file.endswith("coarse.csv") and "step of 0.5 s" in message and "0.4" in message
    assert report.status() == 2
    rounded = check_logs(tmp_path / "r.stl", tmp_path, rounding="up")
    assert outcomes(rounded) == {("HOLD", "fine"): "holds", ("HOLD", "coarse"): "violated"}


def test_logs_without_times(tmp_path: Path) -> None:
    write(tmp_path, r_stl="A: always[0,2] x < 3\n", a_csv="x\n1\n2\n4\n1\n")
    steps = check_logs(tmp_path / "r.stl", tmp_path / "a.csv")
    assert steps.rows[0].intervals == ((2, 2),) and "sample 2" in steps.rows[0].explanation
    seconds = check_logs(tmp_path / "r.stl", tmp_path / "a.csv", dt=2)
    assert outcomes(seconds) == {("A", "a"): "holds"}
    with pytest.raises(RhovecError, match="cannot be resampled"):
        check_logs(tmp_path / "r.stl", tmp_path / "a.csv", dt=2, resample=1)


def test_a_missing_channel_costs_only_the_requirements_that_use_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        r_stl="A: always x < 3\nB: always (x > 5 -> once y > 1)\nC: always rate(heat) < 1\n",
        a_csv="time,x,y,Heat\n0,1,1,1\n1,2,2,2\n",
        b_csv="time,x\n0,1\n1,4\n",
    )
    report = check_logs(tmp_path / "r.stl", tmp_path)
    assert outcomes(report) == {
        ("A", "a"): "holds so far", ("B", "a"): "holds", ("A", "b"): "violated",
    }  # fmt: skip
    messages = [unread.message for unread in report.unread]
    assert len(messages) == 3 and report.status() == 2
    assert (
        "'heat'" in messages[0]
        and "is it 'Heat'?" in messages[0]
        and "not checked: C" in messages[0]
    )
    assert "'y'" in messages[2] and "not checked: B" in messages[2]


def test_what_is_wrong_elsewhere_does_not_matter(tmp_path: Path) -> None:
    write(tmp_path, r_stl="A: always x < 3\n", a_csv="time,x,note\n0,1,what\n1,2,3..4\n")
    assert outcomes(check_logs(tmp_path / "r.stl", tmp_path)) == {("A", "a"): "holds so far"}


def test_what_cannot_be_read_is_listed_and_the_rest_is_checked(tmp_path: Path) -> None:
    write(
        tmp_path,
        r_stl="A: always x < 3\n",
        a_csv="time,x\n0,1\n1,4\n",
        b_csv="time,x\n0,1\n1,oops\n",
        c_csv="",
        d_csv="trace,time,x\none,0,1\none,1,2\ntwo,0,1\ntwo,0,2\n",
    )
    report = check_logs(tmp_path / "r.stl", [tmp_path, tmp_path / "gone.csv"])
    assert outcomes(report) == {("A", "a"): "violated", ("A", "d/one"): "holds so far"}
    messages = {Path(unread.file).name: unread.message for unread in report.unread}
    assert "b.csv:3, column 'x': 'oops' is not a number" in messages["b.csv"]
    assert "empty" in messages["c.csv"] and "no such file" in messages["gone.csv"]
    assert "d.csv:4" in messages["d.csv"] and "--repair-times" in messages["d.csv"]
    assert "trace two" in messages["d.csv"]


def test_arrays_take_names(tmp_path: Path) -> None:
    np.save(tmp_path / "runs.npy", np.arange(12.0).reshape(2, 2, 3))
    write(tmp_path, r_stl="A: always speed < 9\n", s_stl="A: always x_1 < 9\n")
    named = check_logs(tmp_path / "r.stl", tmp_path / "runs.npy", variables=["pedal", "speed"])
    plain = check_logs(tmp_path / "s.stl", tmp_path / "runs.npy")
    assert [r.verdict for r in named.rows] == [r.verdict for r in plain.rows] == [
        "holds so far", "violated",
    ]  # fmt: skip
    lacking = check_logs(tmp_path / "r.stl", tmp_path / "runs.npy")
    assert lacking.rows == () and "'speed'" in lacking.unread[0].message


def test_begin_held(tmp_path: Path) -> None:
    write(tmp_path, r_stl="A: always once[0,2] x > 0\n", a_csv="time,x\n0,-1\n1,1\n")
    assert check_logs(tmp_path / "r.stl", tmp_path / "a.csv").rows[0].verdict == "open"
    held = check_logs(tmp_path / "r.stl", tmp_path / "a.csv", begin="held")
    assert held.rows[0].verdict == "violated"
    with pytest.raises(RhovecError, match="begin must be"):
        check_logs(tmp_path / "r.stl", tmp_path / "a.csv", begin="first")


def test_responses_are_counted_over_logs(tmp_path: Path) -> None:
    write(
        tmp_path,
        r_stl="A: always (p -> eventually[0,3] q)\nB: always (r -> q)\n",
        a_csv="time,p,q,r\n0,1,0,0\n1,0,1,0\n2,0,0,0\n",
        b_csv="time,p,q,r\n0,0,0,0\n1,1,0,0\n2,0,0,0\n3,0,1,0\n4,0,0,0\n",
    )
    report = check_logs(tmp_path / "r.stl", tmp_path)
    assert report.answers("A") == (2, 2, 0, 2.0) and not report.vacuous("A")
    assert report.answers("B") == (0, 0, 0, None) and report.vacuous("B")
    flags = [row.robustness for row in report.rows]
    assert flags == [math.inf] * 4  # flags have no margin


def test_wrong_requirements_are_reported_together(tmp_path: Path) -> None:
    write(tmp_path, r_stl="A: always x <\nB: always x < 3\nC: x ! 3\n", a_csv="time,x\n0,1\n1,2\n")
    with pytest.raises(RequirementError) as error:
        check_logs(tmp_path / "r.stl", tmp_path)
    assert len(error.value.problems) == 2
    told: list[object] = []
    report = check_logs(tmp_path / "r.stl", tmp_path, invalid=told.extend)
    assert len(told) == 2 and outcomes(report) == {("B", "a"): "holds so far"}


def test_records_are_json(report: Report) -> None:
    for row in report.rows[:20]:
        record = row.record()
        assert {"requirement", "trace", "verdict", "robustness", "intervals"} <= record.keys()
        json.dumps(record)
