"""Relations of all pairs of requirements: proofs, what only traces show, the page, the command."""

from __future__ import annotations

import csv
import itertools
import json
import random
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.compare.page import components, graph, laid_out, page
from rhovec.compare.prover import BOTH, ONLY_A, ONLY_B, impossible_cases
from rhovec.formula import Requirement
from rhovec.formula.schema import SchemaChannel

runner = CliRunner()
FILE = """\
param T = 500 ms
pressed := pedal > 0.5
B-1 "Pressure after the pedal": always (pressed -> eventually[0, T] pressure > 30)
B-2 "Pressure soon": always (pressed -> eventually[0, 200 ms] pressure > 30)
B-3: not eventually (pedal > 0.5 and always[0, T] pressure <= 30)
S-1: always `Speed <km/h>` < 120
S-2: always `Speed <km/h>` < 100
S-3: eventually `Speed <km/h>` > 130
S-4: always (pedal > 3 and pedal < 2)
S-5: pedal > 1 or pedal <= 1
"""


def related(found: rv.SetComparison) -> set[tuple[str, str, str]]:
    return {
        (found.label(a, title=False), relation, found.label(b, title=False))
        for a, b, relation, *_ in found.proved
    }


def requirements(text: str = FILE, **options: Any) -> list[Requirement]:
    from rhovec.formula.requirements import read_data, resolve

    found, wrong = resolve(read_data(text.encode(), "b.stl"), **{"dt": 0.1} | options)
    assert not wrong
    return found


# -- proofs ----------------------------------------------------------------------------------------


def test_examples_lose_no_proof_and_no_trace_refutes_one() -> None:
    """All pairs at once give what the prover gives pair by pair, and what follows from that."""
    formulae = [phi for phi in rv.random_formulae(60, 3, past=True) if phi.size < 9][:14]
    formulae += [rv.simplify(phi) for phi in formulae[:4]] + [~formulae[5]]
    found = rv.compare_sets(formulae)
    assert found.pairs == len(list(itertools.combinations(formulae, 2)))
    pairs = {frozenset((r.a, r.b)): r for r in found.proved}
    trivial = {*found.never, *found.always}
    x = np.random.default_rng(0).normal(size=(400, 3, 30)).round(1)
    names = sorted({name for phi in formulae for name in phi.variables})
    holds = rv.satisfaction(formulae, {n: x[:, i] for i, n in enumerate(names)}, trace=True)
    assert len(found.proved) >= 4
    for i, j in itertools.combinations(range(len(formulae)), 2):
        if {i, j} & trivial:
            continue
        alone = impossible_cases(formulae[i], formulae[j], (BOTH, ONLY_A, ONLY_B))
        known = pairs.get(frozenset((i, j)))
        ruled_out = set()
        if known:
            a_is_i = known.a == i
            ruled_out = {
                "equivalent": {ONLY_A, ONLY_B},
                "implies": {ONLY_A if a_is_i else ONLY_B},
                "contradicts": {BOTH},
            }[known.relation]
        assert alone <= ruled_out, (i, j)
        cases = {
            BOTH: holds[i] & holds[j],
            ONLY_A: holds[i] & ~holds[j],
            ONLY_B: ~holds[i] & holds[j],
        }
        assert not any(cases[case].any() for case in ruled_out), (i, j)
        assert known is None or (i, j) not in found.undecided


def test_proofs_need_no_traces_and_take_any_names() -> None:
    found = rv.compare_sets(requirements())
    assert related(found) == {
        ("B-1", "equivalent", "B-3"), ("B-2", "implies", "B-1"), ("B-2", "implies", "B-3"),
        ("S-2", "implies", "S-1"), ("S-1", "contradicts", "S-3"), ("S-2", "contradicts", "S-3"),
    }  # fmt: skip
    ids = [one.id for one in found.requirements]
    assert [ids[i] for i in found.never] == ["S-4"]
    assert [ids[i] for i in found.always] == ["S-5"]
    assert found.undecided == found.doubtful == ()
    assert [tuple(ids[i] for i in group) for group in found.groups if len(group) > 1] == [
        ("B-1", "B-3")
    ]
    assert len(found.direct) == 2  # between groups
    text = str(found)
    assert "All 28 pairs of the 8 requirements of set 1" in text
    assert 'B-1 "Pressure after the pedal" = B-3: equivalent' in text
    assert "S-4 can never hold" in text and "S-5 always holds" in text
    assert "implications that follow from these: 1" in text


def test_what_follows_is_proved_and_not_drawn() -> None:
    found = rv.compare_sets([f"always x > {c}" for c in (3, 1, 2, 0)] + ["eventually x < -1"])
    assert found.direct == ((0, 2), (1, 3), (2, 1))
    assert sum(r.relation == "implies" for r in found.proved) == 6
    assert sum(r.relation == "contradicts" for r in found.proved) == 4


def test_a_pair_that_is_neither_proved_nor_refuted_is_undecided() -> None:
    # Nothing rises for ever on a trace that holds its last sample, and no rule says so.
    found = rv.compare_sets(["always eventually[0,9] rise(p)", "always eventually[0,8] fall(p)"])
    assert found.doubtful == (0, 1)
    assert (0, 1) in found.undecided
    assert "Undecided, neither a proof nor a counterexample was found:" in str(found)


def test_sets_are_compared_across() -> None:
    old, new = requirements(), requirements(FILE.replace("< 100", "< 90"), parameters={"T": "1 s"})
    found = rv.compare_sets(old, new, names=["old.stl", "new.stl"])
    assert found.pairs == 64
    assert all(found.sets[r.a] != found.sets[r.b] for r in found.proved)
    assert {
        ("B-2 (old.stl)", "equivalent", "B-2 (new.stl)"),
        ("B-1 (old.stl)", "implies", "B-1 (new.stl)"),
        ("S-2 (new.stl)", "implies", "S-2 (old.stl)"),
    } <= related(found)
    assert "pairs within one of them were not compared" in str(found)


def test_too_few_formulae_are_named() -> None:
    for wrong in (["x > 1"], "x > 1"):
        with pytest.raises(rv.RhovecError, match="two or more formulae"):
            rv.compare_sets(wrong)
    with pytest.raises(rv.RhovecError, match="two or more"):
        rv.compare_sets(["x > 1", "x > 2"], [])
    assert rv.compare_sets("x > 1", ["x > 2"]).proved[0][:3] == (1, 0, "implies")
    # A formula that no engine evaluates at all times still gets proofs.
    far = "once eventually[0,2000000] x > 1"
    found = rv.compare_sets([far, "once eventually[0,2000000] x > 0", "y > 1"])
    assert found.proved[0][:3] == (0, 1, "implies")
    assert found.doubtful == (0, 1)


# -- the user's traces -----------------------------------------------------------------------------


def test_traces_suggest_what_is_not_proved() -> None:
    x, y = np.array([1.0, 1, 1, 0, 0, 0]), np.array([1.0, 1, 0, 0, 0, 0])
    traces = rv.TraceMeasure(np.stack([x, y], axis=1)[:, :, None])
    texts = ["x_1 > 0.5", "x_0 > 0.5", "x_0 < 0.2", "x_0 > -1", "x_1 > -1", "z > 1", "x_0 > 0.6"]
    found = rv.compare_sets(texts, traces=traces)
    assert [(r.a, r.b, r.relation, r.counts) for r in found.suggested] == [
        (0, 1, "implies", (2, 0, 1, 3)), (0, 2, "contradicts", (0, 2, 3, 1)),
        (0, 6, "implies", (2, 0, 1, 3)),
    ]  # fmt: skip
    assert found.proved  # 6 implies 1, and both contradict 2, so that no trace is asked
    assert found.constant == ((3, 4), ())
    assert found.untested == (5,)
    vacuous = [(i, j) for i, j in itertools.combinations((0, 1, 2, 3, 4, 6), 2) if {i, j} & {3, 4}]
    proved = {frozenset((r.a, r.b)) for r in found.proved}
    assert found.vacuous == sum(frozenset(pair) not in proved for pair in vacuous)
    assert [r.expected for r in found.suggested] == [1.0, 1.0, 1.0]
    text = str(found)
    assert "Only on these 6 traces, not proved:" in text
    assert "both 2, only the second 1, neither 3 (by chance, 1.0 of 6 would contradict it)" in text
    assert "cannot relate what holds on every trace: x_0 > -1, x_1 > -1" in text
    assert "which lack their variables: z > 1" in text


# -- the page --------------------------------------------------------------------------------------


def test_the_order_of_the_graph() -> None:
    draw = random.Random(0)
    for _ in range(50):
        n = draw.randrange(2, 30)
        edges = {tuple(sorted(draw.sample(range(n), 2))) for _ in range(draw.randrange(1, 40))}
        names = list(range(n))
        draw.shuffle(names)
        edges = {(names[a], names[b]) for a, b in edges}
        parts = components(edges)
        rows = [node for part in parts for node in part]
        assert sorted(rows) == sorted({node for edge in edges for node in edge})
        place = {node: row for row, node in enumerate(rows)}
        assert all(place[a] < place[b] for a, b in edges)
        part_of = {node: k for k, part in enumerate(parts) for node in part}
        assert all(part_of[a] == part_of[b] for a, b in edges)
        moved = {(place[a], place[b]) for a, b in edges}
        trunks, lanes = laid_out(moved)
        drawn = {(row, target) for row, targets, _ in trunks for target in targets}
        assert drawn == {(a, b) for a, b in moved if b > a + 1}
        for one, other in itertools.combinations(trunks, 2):
            apart = one.targets[-1] < other.row or other.targets[-1] < one.row
            assert one.lane != other.lane or apart
        assert lanes == len({trunk.lane for trunk in trunks})


def test_the_page_is_one_well_formed_file() -> None:
    hostile = '<script>alert("1")</script>'
    members = [*requirements(), Requirement(rv.parse("always q > 1"), "Q&1", hostile, text="q < 1")]
    members.append(Requirement(rv.parse("q > 1"), text="q > 1", source="b.stl:9"))
    traces = rv.TraceMeasure(np.array([[[1.0], [3]], [[0.0], [4]]]), ["q", "pedal"])
    found = rv.compare_sets(members, traces=traces, names=["b.stl"])
    html = page(found)
    root = ET.fromstring(html)
    assert "http" not in html.replace("http://www.w3.org", "")
    assert not root.findall(".//script")
    for svg in root.iter("svg"):
        width, height = map(float, svg.get("viewBox", "").split()[2:])
        names = [text.text for text in svg.iter("text") if text.get("class") == "name"]
        assert {"B-2", "B-1 = B-3", "Q&1", "b.stl:9"} <= set(names)
        for text in svg.iter("text"):
            assert float(text.get("x", "")) < width and float(text.get("y", "")) < height
        heads = [p for p in svg.iter("path") if p.get("class") == "head"]
        assert sum(p.get("d", "").count("z") for p in heads) == len(found.direct)
    assert len(list(root.iter("svg"))) == 2
    whole = "".join(root.itertext())
    assert hostile in whole and "S-4 can never hold." in whole
    assert 'class="narrow"' in graph(found, 356, "narrow")
    assert "Proved equivalent" not in page(rv.compare_sets(["x > 1", "y > 1"]))


# -- the command -----------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    result = runner.invoke(app, ["compare", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def refused(*arguments: object) -> str:
    result = runner.invoke(app, ["compare", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line.removeprefix("rhovec: ")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "b.stl"
    path.write_text(FILE)
    return path


def test_the_command_compares_a_file(file: Path, tmp_path: Path) -> None:
    base = ["-F", file, "--dt", 0.1]
    assert run(*base) == f"{rv.compare_sets(rv.read_requirements(file, dt=0.1), names=['b.stl'])}\n"
    facts = json.loads(run(*base, "--json"))
    assert facts["pairs"] == 28 and facts["sets"] == {"b.stl": 8} and facts["never"] == ["S-4"]
    rows = facts["relations"]
    assert rows[0] == {
        "id": "B-2", "title": "Pressure soon", "source": f"{file}:4",
        "formula": "always (pressed -> eventually[0, 200 ms] pressure > 30)",
        "other_id": "B-1", "other_title": "Pressure after the pedal", "other_source": f"{file}:3",
        "other": "always (pressed -> eventually[0, T] pressure > 30)", "relation": "implies",
        "basis": "proved", "both": None, "only_formula": None, "only_other": None, "neither": None,
    }  # fmt: skip
    outputs = [tmp_path / f"r.{suffix}" for suffix in ("csv", "jsonl", "html")]
    assert run(*base, "-o", outputs[0]) == run(*base, "-o", outputs[1]) == ""
    table = list(csv.DictReader(outputs[0].read_text().splitlines()))
    assert [row["relation"] for row in table] == [row["relation"] for row in rows]
    assert list(map(json.loads, outputs[1].read_text().splitlines())) == rows
    assert run(*base, "--html", outputs[2]).startswith("All 28 pairs")
    assert ET.fromstring(outputs[2].read_text()).findtext("head/title")


def test_tables_are_written_as_parquet(file: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "r.parquet"
    run("-F", file, "--dt", 0.1, "-o", out)
    rows = parquet.read_table(out).to_pylist()
    assert rows == json.loads(run("-F", file, "--dt", 0.1, "--json"))["relations"]
    run("x > 1", "y > 1", "z > 1", "-o", out)  # no relation
    empty = parquet.read_table(out)
    assert empty.num_rows == 0 and empty.column_names[:3] == ["formula", "other", "relation"]


def test_files_may_share_names_and_definitions(file: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.stl"
    new.write_text(FILE.replace("< 100", "< 90"))
    text = run("-F", file, "-F", new, "--dt", 0.1, "--set", "T=1 s")
    assert text.startswith("64 pairs of requirements across the 8 of b.stl and the 8 of new.stl")
    assert "S-2 (new.stl) implies S-2 (b.stl)" in text
    names = tmp_path / "names.stl"
    names.write_text("fast := speed > 100\n")
    new.write_text("A: always fast\nB: eventually fast\nC: always not fast\n")
    assert "A implies B" in run("-F", names, "-F", new)
    across = json.loads(run("X: speed > 100", "-F", names, "-F", new, "--json"))
    assert across["sets"] == {"the arguments": 1, "new.stl": 3}
    assert {(r["id"], r["other_id"]) for r in across["relations"]} >= {("A", "X"), ("X", "B")}
    (tmp_path / "v2").mkdir()
    second = tmp_path / "v2" / new.name
    second.write_text(new.read_text())
    text = run("-F", names, "-F", new, "-F", second)
    assert f"A ({new}) = A ({second}): equivalent" in text
    assert "no file has the parameter U" in refused("-F", new, "-F", names, "--set", "U=1")
    new.write_text("A: always fast +\nB: speed >\n")
    result = runner.invoke(app, ["compare", "-F", str(names), "-F", str(new), "-F", str(file)])
    assert result.exit_code == 2
    assert result.stderr.count("new.stl:1") == result.stderr.count("new.stl:2") == 1


def test_two_formulae_over_any_names_are_proved() -> None:
    text = run("always speed > 1", "speed > 0")
    assert "always speed > 1 implies speed > 0" in text
    assert text.startswith("The one pair of the 2 requirements of the arguments")
    assert json.loads(run("speed > 1", "x_0 > 1", "--json"))["relations"] == []


def test_a_schema_says_steps_and_units(tmp_path: Path) -> None:
    pytest.importorskip("pint")
    schema = rv.Schema((SchemaChannel("speed", 10, 5, unit="m/s"),), dt=0.5)
    (tmp_path / "car.json").write_text(schema.to_json())
    texts = ["A: always[0,2 s] speed < 36 km/h", "B: always[0,1.5] speed < 10", "C: speed < 11"]
    found = json.loads(run(*texts, "--schema", tmp_path / "car.json", "--json"))["relations"]
    assert [(r["id"], r["relation"], r["other_id"]) for r in found] == [
        ("A", "implies", "B"), ("A", "implies", "C"), ("B", "implies", "C"),
    ]  # fmt: skip


def test_logs_suggest_relations(file: Path, tmp_path: Path) -> None:
    lines = ["trace,pedal,pressure"] + [f"{i},{i % 3},{40 * (i % 3 > 0)}" for i in range(9)]
    (tmp_path / "logs.csv").write_text("\n".join(lines))
    base = ["-F", file, "--dt", 0.1, "-t", tmp_path / "logs.csv"]
    facts = json.loads(run(*base, "--json"))
    assert facts["traces"] == 9
    assert facts["untested"] == ["S-1", "S-2", "S-3"]
    assert facts["hold_on_all"] == ["B-1", "B-2", "B-3", "S-5"] and facts["hold_on_none"] == ["S-4"]
    assert facts["vacuous"] == 0  # all of these pairs are proved, or have a trivial formula
    assert json.loads(run(*base, "--json", "--n-traces", 4))["traces"] == 4


def test_mistakes_about_sets_are_named(file: Path, tmp_path: Path) -> None:
    base = ["-F", file, "--dt", 0.1]
    for name, value in (("--plot", tmp_path / "a.png"), ("--points", 3), ("--n-traces", 3)):
        assert refused(*base, name, value).startswith(f"{name} goes with two formulae")
    assert "must end in .html" in refused(*base, "--html", tmp_path / "a.htm")
    assert "must end in .csv, .jsonl, .parquet" in refused(*base, "-o", tmp_path / "a.npy")
    assert "compare takes two or more formulae, not 1" in refused("x_0 > 1")
