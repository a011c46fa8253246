"""A corpus on disk: the same bytes whatever the workers and however often it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.corpus import KINDS, SPLITS, Recipe, draw_families
from rhovec.corpus.build import build
from rhovec.corpus.stats import corpus_stats, quantiles
from rhovec.errors import RhovecError

parquet = pytest.importorskip("pyarrow.parquet")
RECIPE = Recipe(seed=9, family_size=4)
FAMILIES, SHARD = 1000, 10


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a corpus; what a killed build leaves behind is hidden (.rhovec-*.tmp)."""
    visible = (path for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in visible}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    build(folder, RECIPE, families=FAMILIES, shard=SHARD)
    return folder


def test_shards_hold_the_families(corpus: Path) -> None:
    table = parquet.read_table(corpus)
    drawn = draw_families(RECIPE, np.arange(FAMILIES))
    assert table["formula"].to_pylist() == [str(phi) for phi in drawn.programs.unpack()]
    assert table["family"].to_pylist() == drawn.family.tolist()
    assert table["kind"].to_pylist() == [KINDS[k] for k in drawn.kind]
    assert table["split"].to_pylist() == [SPLITS[s] for s in drawn.split]
    assert table["depth"].to_pylist() == drawn.depth.tolist()
    assert table["tokens"].to_pylist() == drawn.tokens.tolist()
    assert [list(row.values()) for row in table["changes"].to_pylist()] == drawn.changes.tolist()


def test_any_number_of_workers_gives_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    paths = build(
        tmp_path,
        RECIPE,
        families=FAMILIES,
        shard=SHARD,
        workers=2,
        progress=lambda *shards: done.append(shards),
    )
    assert contents(tmp_path) == contents(corpus)
    assert done == [(i + 1, len(paths)) for i in range(FAMILIES // SHARD)]


def test_killed_and_run_again_gives_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    program = (
        "from rhovec.corpus import Recipe; from rhovec.corpus.build import build; "
        f"build({str(tmp_path)!r}, {RECIPE!r}, families={FAMILIES}, shard={SHARD}, workers=2)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(rv.__file__).parents[1])}
    rng = np.random.default_rng(0)
    there = 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", program], env=environment)
        while process.poll() is None and len(list(tmp_path.glob("*.parquet"))) < there + 5:
            time.sleep(0.001)
        time.sleep(float(rng.uniform(0, 0.02)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        there = len(list(tmp_path.glob("*.parquet")))
    assert 0 < there < FAMILIES // SHARD
    build(tmp_path, RECIPE, families=FAMILIES, shard=SHARD)
    assert contents(tmp_path) == contents(corpus)


def test_a_folder_with_something_else_is_refused(corpus: Path, tmp_path: Path) -> None:
    before = contents(corpus)
    for recipe, families in ((Recipe(seed=8, family_size=4), FAMILIES), (RECIPE, FAMILIES + 1)):
        with pytest.raises(RhovecError, match=r"holds a corpus with (seed 9|families 1000), not"):
            build(corpus, recipe, families=families, shard=SHARD)
    assert contents(corpus) == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RhovecError, match="not empty and holds no corpus"):
        build(tmp_path, RECIPE, families=1)
    with pytest.raises(RhovecError, match="as a folder"):
        build(tmp_path / "notes.txt", RECIPE, families=1)
    with pytest.raises(RhovecError, match="1 or more"):
        build(tmp_path / "new", RECIPE, families=0)
    (tmp_path / "_manifest.json").write_text("{")
    with pytest.raises(RhovecError, match="not JSON"):
        corpus_stats(tmp_path)


def test_more_families_than_shards_can_be_named_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RhovecError, match="families must be at most 409,600,000, not 1"):
        build(tmp_path / "corpus", families=10**20)
    assert not (tmp_path / "corpus").exists()


def test_stats_count_what_is_there(corpus: Path) -> None:
    stats = corpus_stats(corpus)
    drawn = draw_families(RECIPE, np.arange(FAMILIES))
    formulae = drawn.programs.unpack()
    assert stats["formulae"] == sum(stats["kinds"].values()) == len(formulae)
    assert stats["depth"].tolist() == np.bincount([phi.depth for phi in formulae]).tolist()
    assert stats["nodes"].tolist() == np.bincount([phi.size for phi in formulae]).tolist()
    assert stats["horizon"].tolist() == np.bincount([phi.horizon for phi in formulae]).tolist()
    assert quantiles(stats["nodes"])["median"] == int(
        np.quantile([phi.size for phi in formulae], 0.5, method="inverted_cdf")
    )
    codes = np.bincount(drawn.programs.code[:, 0], minlength=15)
    assert [stats["operators"][name] for name in (">=", ">", "<=", "<", "not")] == [
        codes[i] for i in (0, 1, 2, 3, 6)
    ]
    assert [
        stats["operators"][name] for name in ("always", "eventually", "and", "or", "until")
    ] == [codes[i] for i in (8, 9, 10, 11, 14)]
    assert list(stats["changes"].values()) == drawn.changes.sum(0).tolist()
    assert stats["thresholds"].sum() == codes[:4].sum()  # shards this small are taken whole


def test_the_commands_build_resume_and_count(tmp_path: Path) -> None:
    def run(*arguments: object):
        return CliRunner().invoke(app, ["corpus", *map(str, arguments)])

    out, figure = tmp_path / "out", tmp_path / "stats.png"
    options = ("--families", 40, "--seed", 1, "--channels", 2)
    for _ in range(2):
        result = run("build", out, *options)
        assert result.exit_code == 0, result.output
        assert "320 formulae in 1 shards" in result.stdout
        assert result.stderr == ""
    assert json.loads((out / "_manifest.json").read_text())["channels"] == 2
    shown = run("stats", out, "--plot", figure)
    assert shown.exit_code == 0, shown.output
    assert "320 of 320 formulae" in shown.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")
    for wrong, message in (
        (("build", out, "--seed", 2), "seed 1, not 2"),
        (("build", out, "--channels", 0), "channels must be"),
        (("stats", tmp_path), "holds no corpus"),
        (("stats", out, "--plot", "x.pdf"), ".png"),
    ):
        result = run(*wrong)
        assert result.exit_code == 2
        assert message in result.stderr
