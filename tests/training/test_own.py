"""Distilling traces of one's own: from files to a model that reads names, units and seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rhovec as rv
from rhovec.cli import app
from rhovec.errors import RhovecError
from rhovec.formula.programs import Programs
from rhovec.formula.schema import SchemaChannel
from rhovec.spaces.scales import as_given

torch = pytest.importorskip("torch")
from rhovec.models import store  # noqa: E402
from rhovec.training.distill import Config  # noqa: E402
from rhovec.training.own import OwnTraces, channel_values  # noqa: E402
from rhovec.training.teachers import kernel_name  # noqa: E402

from .drives import NAMES, drives  # noqa: E402

SETTINGS = ("steps=2", "batch=64", "every=1", "validate=1")


def of_channels(*names: str, **options: float) -> rv.Schema:
    return rv.Schema(tuple(SchemaChannel(name) for name in names), **options)  # type: ignore[arg-type]


def written(path: Path, traces: np.ndarray, step: float = 0.5) -> Path:
    rows = ["trace,time,speed,rpm"]
    for i, trace in enumerate(traces):
        rows += [f"{i},{step * t:g},{a:.4f},{b:.4f}" for t, (a, b) in enumerate(trace.T)]
    path.write_text("\n".join(rows))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    traces = written(folder / "drives.csv", drives(60))
    other = written(folder / "other.csv", drives(40, seed=1))
    wanted = folder / "wanted.stl"
    wanted.write_text("".join(f"R{i}: always[0,{i / 2}] speed < {50 + i}\n" for i in range(1, 6)))
    command = [
        "train", "encoder", "--preset", "tiny", "-t", str(traces), "--held-out", str(other),
        *(f"--set={text}" for text in SETTINGS), "--out", str(folder / "run"), "--evaluate",
        "--families", "3", "-F", str(wanted),
    ]  # fmt: skip
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return folder


def test_the_model_reads_names_units_and_seconds(run: Path) -> None:
    model = rv.load(run / "run" / "model")
    assert (model.encoder.channels, model.encoder.points) == (2, 25)
    assert model.schema is not None and model.schema.dt == 0.5
    assert [c.expression for c in model.schema.channels] == list(NAMES)
    text = "always[0,5] (speed < 60 and rpm < 4000)"
    lowered = model.schema.lower(text)
    given = model.embed([text, model.schema.parse(text)])
    for vector in (given[1], *model.embed(Programs.pack([lowered])), model.lowered.embed(lowered)):
        np.testing.assert_allclose(vector, given[0], atol=1e-4)
    assert model.embed(text).shape == (128,)
    assert model.similarity(text, text) == pytest.approx(1, abs=1e-5)
    with pytest.raises(RhovecError, match="no channel 'gear'"):
        model.embed("always gear < 3")
    for other in ("x_0 > 1", lowered):  # names of the model's channels, not of the system's
        with pytest.raises(RhovecError, match="no channel 'x_0'"):
            model.embed(other)
    with pytest.raises(RhovecError, match="whole number of steps"):
        model.embed("always[0,0.7] speed < 60")
    saved = run / "again"
    model.save(saved)
    assert rv.load(saved).schema == model.schema


def test_its_folder_has_the_traces_of_its_kernel(run: Path, tmp_path: Path) -> None:
    model = rv.load(run / "run" / "model")
    pair = ["always[0,5] speed < 60", "eventually[0,2.5] rpm > 3000"]
    own = OwnTraces.of(
        rv.read_traces(run / "drives.csv"), held_out=rv.read_traces(run / "other.csv")
    )
    exact = own.judges(0.2)["training traces"].gram([own.schema.lower(text) for text in pair])
    np.testing.assert_allclose(model.kernel().gram(pair), exact, atol=1e-5)
    assert model.kernel(10).gram(pair)[0, 1] != exact[0, 1]
    (hit,) = rv.Index.build(pair, vectors=model).search(pair[0], k=1, rerank=True)
    assert hit.kernel == pytest.approx(1, abs=1e-5)
    result = CliRunner().invoke(
        app, ["evaluate", "fidelity", "--model", str(run / "run" / "model"), "--quick", "--json"]
    )
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["similarity", *pair, "--model", str(run / "run" / "model")])
    assert result.exit_code == 0, result.output
    model.save(tmp_path)
    traces = tmp_path / store.TRACES
    traces.write_bytes(traces.read_bytes()[:-4] + b"abcd")
    with pytest.raises(RhovecError, match="is not the file that was saved"):
        rv.load(tmp_path).kernel()


def test_an_evaluation_does_not_depend_on_the_names_of_channels(run: Path, tmp_path: Path) -> None:
    model = rv.load(run / "run" / "model")
    config = json.loads(json.dumps(model.config))
    for i, channel in enumerate(config["schema"]["channels"]):
        channel["expression"] = f"x_{i}"
    store.copy(run / "run" / "model", tmp_path, config)
    rows = [
        CliRunner().invoke(app, ["evaluate", "fidelity", "--model", str(f), "--quick", "--json"])
        for f in (run / "run" / "model", tmp_path)
    ]
    assert rows[0].exit_code == 0 and rows[0].stdout == rows[1].stdout != ""


def test_a_model_may_be_handed_on_without_its_traces(run: Path, tmp_path: Path) -> None:
    pair = ["always[0,5] speed < 60", "not eventually[0,5] speed >= 60"]
    whole = rv.load(run / "run" / "model")
    whole.save(tmp_path / "given")
    (tmp_path / "given" / store.TRACES).unlink()
    whole.save(tmp_path / "again")  # with traces, which must not stay behind
    rv.load(tmp_path / "given").save(tmp_path / "again")
    for folder in (tmp_path / "given", tmp_path / "again"):
        model = rv.load(folder)
        assert not (folder / store.TRACES).exists()
        assert model.fingerprint == whole.fingerprint
        assert model.embed(pair).tobytes() == whole.embed(pair).tobytes()
        index = rv.Index.build(pair, vectors=model)
        assert index.search(pair[0], k=1)
        for work in (
            model.kernel,
            lambda index=index: index.duplicates(0.01),
            lambda index=index: index.search(pair[0], rerank=True),
        ):
            with pytest.raises(RhovecError, match="handed on without its traces, which its exact"):
                work()
    command = ["similarity", *pair, "--model", str(tmp_path / "given")]
    result = CliRunner().invoke(app, [*command, "--by", "model"])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, [*command, "--by", "both"])
    assert result.exit_code == 2 and "handed on without its traces" in result.stderr


def test_the_command_line_reads_formulae_by_the_models_schema(run: Path) -> None:
    model = str(run / "run" / "model")
    text = "always[0,5] speed < 60"
    for command in (["embed", text], ["similarity", "--by", "model", text, "rpm > 2000"]):
        result = CliRunner().invoke(app, [*command, "--model", model])
        assert result.exit_code == 0, result.output
    line = json.loads(CliRunner().invoke(app, ["embed", text, "--model", model]).stdout)
    np.testing.assert_allclose(line["vector"], rv.load(model).embed(text), atol=1e-6)


def test_a_library_of_its_vectors(run: Path) -> None:
    model = rv.load(run / "run" / "model")
    texts = ["always[0,5] speed < 60", "eventually[0,2.5] rpm > 3000", "speed > 10"]
    index = rv.Index.build(texts, vectors=model)
    (hit, *_) = index.search("not eventually[0,5] speed >= 60", k=1)
    assert hit.formula == model.schema.parse(texts[0])  # type: ignore[union-attr]


def test_it_is_evaluated_on_both_kinds_of_vectors_and_on_traces_never_seen(run: Path) -> None:
    rows = json.loads((run / "run" / "evaluation.json").read_text())
    sets = {row["set"].split("; ", 1)[1] for row in rows if "set" in row}
    assert sets == {
        f"{what} against the {where} traces"
        for what in ("directions", "vectors")
        for where in ("training", "held-out")
    }
    assert any(row.get("set", "").startswith("wanted.stl") for row in rows)
    card = (run / "run" / "model" / "README.md").read_text()
    assert "## Channels, every 0.5 s" in card and "| rpm |" in card
    (example,) = re.findall(r"model\.embed\((\[.*\])\)  # \(2, 128\)", card)
    first, second = json.loads(example)
    assert first.startswith("always speed >= ") and second.startswith("eventually rpm < ")
    assert rv.load(run / "run" / "model").embed([first, second]).shape == (2, 128)


def test_a_run_is_continued_only_on_the_same_traces(run: Path, tmp_path: Path) -> None:
    command = ["train", "encoder", "--preset", "tiny", "-t", str(run / "other.csv"), "--held-out",
               str(run / "drives.csv"), *(f"--set={text}" for text in SETTINGS), "--out"]  # fmt: skip
    result = CliRunner().invoke(app, [*command, str(run / "run")])
    assert result.exit_code == 2 and "50 or more" in result.output
    swapped = ["train", "encoder", "--preset", "tiny", "-t", str(run / "drives.csv"), "-t",
               str(run / "other.csv"), *command[8:], str(run / "run")]  # fmt: skip
    result = CliRunner().invoke(app, swapped)
    assert result.exit_code == 2 and "holds a run with kernel" in result.output
    own, other = (OwnTraces.of(drives(80, seed), NAMES) for seed in (0, 2))
    config = own.configured(Config(traces=8))
    assert kernel_name(own.kernel(config)) != kernel_name(other.kernel(config))


def test_a_decoder_for_it(run: Path, tmp_path: Path) -> None:
    command = [
        "train", "decoder", "--preset", "tiny", f"--set=model={run / 'run' / 'model'}",
        *(f"--set={text}" for text in (*SETTINGS, "dimension=128", "shown=4")),
        "--out", str(tmp_path / "run"), "--evaluate",
    ]  # fmt: skip
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    model = rv.load(tmp_path / "run" / "model")
    (answer, *_) = model.decode(model.embed("always[0,5] speed < 60"), samples=2, refine=False)
    assert set(answer.variables) <= set(NAMES)  # in the traces' names
    assert model.kernel().similarity(answer, answer) == pytest.approx(1)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["channels"], config["points"]) == (2, 25)


def test_channels_are_standardised_expressions() -> None:
    traces = as_given(drives(80), NAMES)
    schema = rv.Schema.fit(["rpm - 40 * speed >= 0", "speed >= 0"], traces.values, NAMES, dt=0.5)
    values = channel_values(schema, traces)
    for i, channel in enumerate(schema.channels):
        names = {"speed": traces.values[:, 0], "rpm": traces.values[:, 1]}
        own = sum(w * names[str(v)] for v, w in channel.terms)
        np.testing.assert_allclose(values[:, i] * channel.std + channel.mean, own, rtol=1e-4)
    assert np.allclose(values.mean(axis=(0, 2)), 0, atol=1e-5)
    assert np.allclose(values.std(axis=(0, 2)), 1, atol=1e-5)


def test_the_kernel_of_lowered_formulae_is_that_of_the_traces() -> None:
    """One channel per formula: scales cancel in the cosine, so both kernels are the same."""
    own = OwnTraces.of(drives(80), NAMES, dt=0.5, held_out=drives(50, 1))
    texts = ["always[0,5] speed < 60", "eventually[2,8] speed > 30", "speed > 10 until speed > 45"]
    exact = rv.StlKernel(rv.TraceMeasure(drives(80), NAMES))
    formulae = [own.schema.parse(text) for text in texts]
    lowered = [own.schema.lower(phi) for phi in formulae]
    judge = own.judges(0.2)["training traces"]
    np.testing.assert_allclose(judge.gram(lowered), exact.gram(formulae), atol=1e-4)


def test_copies_of_a_trace_stay_together() -> None:
    own = OwnTraces.of(np.repeat(drives(80), 2, axis=0), NAMES)
    assert (len(own.values), len(own.held_out)) == (128, 32)
    kept, other = ({t.tobytes() for t in part} for part in (own.values, own.held_out))
    assert (len(kept), len(other)) == (64, 16) and not kept & other


def test_a_fifth_is_held_out_and_no_trace_is_in_both_parts() -> None:
    own = OwnTraces.of(drives(100), NAMES)
    assert len(own.values) == 80 and len(own.held_out) == 20
    apart = (own.values[:, None] != own.held_out).any(axis=(2, 3))
    assert apart.all()
    assert (own.values == OwnTraces.of(drives(100), NAMES).values).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"traces": drives(60)[:55]},
            "44 different traces to distil, beside 11 held out.*50 or more",
        ),
        ({"traces": np.where(np.arange(2)[:, None] == 0, drives(60), 7.0)}, "constant"),
        ({"traces": np.full((60, 2, 9), np.nan)}, "must be finite"),
        ({"held_out": drives(20, points=9)}, "of one length"),
        ({"held_out": drives(60)[:20]}, "20 of 20 held-out traces are among those to distil"),
        (
            {"held_out": np.concatenate([drives(60)[:10], drives(10, 5)])},
            "10 of 20 held-out traces are among those to distil",
        ),
        ({"schema": "x"}, "schema must be a Schema, not 'x'"),
        ({"seed": "a"}, "seed must be a whole number, not 'a'"),
        (
            {
                "held_out": {"speed": drives(20)[:, 0]},
                "variables": None,
                "traces": dict(zip(NAMES, drives(60).swapaxes(0, 1), strict=True)),
            },
            "the held-out traces have no variable",
        ),
        ({"schema": of_channels("gear")}, "no variable 'gear'"),
        ({"schema": of_channels(*NAMES, dt=0.1), "dt": 0.5}, "make them"),
        ({"schema": of_channels(*NAMES, stride=2)}, "stride of 2"),
        ({"variables": ["speed"]}, "variables names 1"),
        ({"traces": np.repeat(drives(1), 100, axis=0)}, "^1 different traces to distil, beside 0"),
        ({"discrete": ["gear"]}, "no variable 'gear'"),
        ({"schema": of_channels(*NAMES), "discrete": ["rpm"]}, "leave out discrete"),
    ],
)
def test_bad_traces_get_one_clear_error(change: dict[str, object], message: str) -> None:
    options: dict[str, object] = {"traces": drives(60), "variables": list(NAMES)} | change
    with pytest.raises(RhovecError, match=message):
        OwnTraces.of(**options)  # type: ignore[arg-type]


def test_bad_files_get_one_clear_error(run: Path, tmp_path: Path) -> None:
    few, good, out = drives(20, points=5), drives(80, points=5), tmp_path / "out"
    flat, spoilt = good.copy(), good.copy()
    flat[:, 1], spoilt[3, 1, 4] = 7.0, np.nan
    files = {"few": few, "flat": flat, "spoilt": spoilt, "good": good, "short": good[:, :, :3]}
    for name, traces in files.items():
        written(tmp_path / f"{name}.csv", traces)
    text = (tmp_path / "good.csv").read_text()
    (tmp_path / "others.csv").write_text(text.replace("rpm", "pressure"))
    written(tmp_path / "finer.csv", good, step=0.25)  # the same numbers
    for name, unit in (("kmh", "km/h"), ("ms", "m/s")):
        (tmp_path / f"{name}.csv").write_text(text.replace("speed", f"speed [{unit}]"))
    for command, arguments, words in (
        ("encoder", ["few"], "16 different traces to distil, beside 4 held out"),
        ("space", ["few"], "33 different traces or more, and there are 20"),
        ("encoder", ["flat"], "without a scale: rpm"),
        ("space", ["flat"], "without a scale: rpm"),
        ("encoder", ["spoilt"], "spoilt.csv:21, column 'rpm': nan is not finite"),
        ("space", ["spoilt"], "spoilt.csv:21, column 'rpm': nan is not finite"),
        ("encoder", ["good", "-t", "others"], "no variable 'pressure', which"),
        ("space", ["good", "-t", "others"], "no variable 'pressure', which"),
        ("encoder", ["good", "--held-out", "others"], "there is no column 'rpm'"),
        ("encoder", ["good", "--held-out", "short"], "held-out traces have 3 points"),
        ("encoder", ["good", "--held-out", "finer"], "a step of 0.25 s, not 0.5 s; give traces of"),
        ("encoder", ["kmh", "--held-out", "ms"], "have 'speed' in m/s, not in km/h; convert its"),
    ):
        given = [a if a.startswith("-") else str(tmp_path / f"{a}.csv") for a in arguments]
        result = CliRunner().invoke(app, ["train", command, "--out", str(out), "-t", *given])
        assert result.exit_code == 2 and words in result.stderr, (arguments, result.output)
        assert len(result.stderr.splitlines()) == 1 and not out.exists()


def test_formulae_go_with_an_evaluation(run: Path, tmp_path: Path) -> None:
    command = ["train", "encoder", "--preset", "tiny", "-F", str(run / "wanted.stl")]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2 and "-F goes with --evaluate" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("always speed < 50\n", ("given.stl: one formula; an evaluation compares",)),
        ("R1: speed < 5\nR2: always velocity < 5\n", ("given.stl:2", "velocity")),
    ],
)
def test_wrong_formulae_are_refused_before_the_training(
    text: str, words: tuple[str, ...], run: Path, tmp_path: Path
) -> None:
    (tmp_path / "given.stl").write_text(text)
    files = ["-t", str(run / "drives.csv"), "--held-out", str(run / "other.csv")]
    command = ["train", "encoder", "--preset", "tiny", *files, "--evaluate"]
    given = [*command, "-F", str(tmp_path / "given.stl"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2 and all(word in result.stderr for word in words)
    assert not (tmp_path / "out").exists()


def test_traces_held_out_have_the_step_and_the_units_of_the_others(tmp_path: Path) -> None:
    traces = written(tmp_path / "a.csv", drives(80, points=5))
    other = rv.read_traces(written(tmp_path / "b.csv", drives(20, 1, points=5), step=0.25))
    named = dict(zip(NAMES, drives(80, points=5).swapaxes(0, 1), strict=True))
    for given in (rv.read_traces(traces), named):
        with pytest.raises(RhovecError, match=r"held-out traces have a step of 0.25 s, not 0.5 s"):
            OwnTraces.of(given, dt=0.5, held_out=other)
    schema = rv.Schema((SchemaChannel("speed", unit="m/s"), SchemaChannel("rpm")), dt=0.5)
    (tmp_path / "c.csv").write_text(traces.read_text().replace("speed", "speed [km/h]"))
    with pytest.raises(RhovecError, match=r"the traces have 'speed' in km/h, not in m/s"):
        OwnTraces.of(rv.read_traces(tmp_path / "c.csv"), schema=schema)


@pytest.mark.parametrize(
    "extra",
    [["--dt", "0.5"], ["--held-out", "x.csv"], ["--schema", "s.json"], ["--discrete", "gear"]],
)
def test_options_of_traces_need_traces(extra: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "encoder", "--out", str(tmp_path), *extra])
    assert result.exit_code == 2 and "go with --traces" in result.output


@pytest.mark.parametrize("preset", ["adapt", "adapt-cpu"])
def test_presets_for_your_own_traces_need_some(preset: str, tmp_path: Path) -> None:
    command = ["train", "encoder", "--out", str(tmp_path / "run"), "--preset", preset]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2 and "give --traces" in result.output
    assert not (tmp_path / "run").exists()


def test_a_run_in_the_folder_of_a_space_is_refused(run: Path, tmp_path: Path) -> None:
    rv.Space.fit(drives(60), NAMES).save(tmp_path / "car")
    there = sorted(path.name for path in (tmp_path / "car").iterdir())
    files = ["-t", str(run / "drives.csv"), "--held-out", str(run / "other.csv")]
    command = ["train", "encoder", "--preset", "tiny", *files, "--out", str(tmp_path / "car")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2 and "there is a space in this folder" in result.output
    assert there == sorted(path.name for path in (tmp_path / "car").iterdir())


def test_variables_that_are_discrete_keep_their_values(run: Path, tmp_path: Path) -> None:
    gears = drives(80)
    gears[:, 1] = np.clip(gears[:, 0] // 10, 1, 4)
    own = OwnTraces.of(gears, ["speed", "gear"], discrete=["gear"])
    assert [c.discrete for c in own.schema.channels] == [False, True]
    assert set(np.unique(own.values[:, 1])) == {1.0, 2.0, 3.0, 4.0}

    traces = written(tmp_path / "gears.csv", gears)
    command = ["train", "encoder", "--preset", "tiny", "-t", str(traces), "--discrete", "rpm"]
    for text in ("steps=1", "batch=64", "every=1"):
        command += ["--set", text]
    result = CliRunner().invoke(
        app, [*command, "-o", str(tmp_path / "run"), "--evaluate", "--families", "4"]
    )
    assert result.exit_code == 0, result.output
    schema = rv.load(tmp_path / "run" / "model").schema
    assert schema and [c.discrete for c in schema.channels] == [False, True]


def test_fields_are_listed_as_the_traces_or_the_model_have_them(run: Path, tmp_path: Path) -> None:
    files = {"-t": run / "drives.csv", "--held-out": run / "other.csv"}
    encoder = ["encoder", *(str(part) for pair in files.items() for part in pair)]
    decoder = ["decoder", "--set", f"model={run / 'run' / 'model'}"]
    for command in (encoder, decoder):
        result = CliRunner().invoke(
            app, ["train", *command, "--fields", "-o", str(tmp_path / "run")]
        )
        assert "channels = 2 " in result.stdout and "points = 25 " in result.stdout, result.output
    assert not (tmp_path / "run").exists()


def test_shipped_models_have_names_and_runs_a_kind(run: Path) -> None:
    for name in ("default", "small"):
        command = ["train", "decoder", "--set", f"model={name}", "--fields", "-o", "run"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0 and f"model = {name}" in result.output
    result = CliRunner().invoke(
        app, ["train", "decoder", "--preset", "tiny", "--out", str(run / "run")]
    )
    assert result.exit_code == 2 and "holds a run of another kind" in result.stderr


def test_set_may_not_contradict_the_traces(run: Path, tmp_path: Path) -> None:
    command = [
        "train",
        "encoder",
        "-t",
        str(run / "drives.csv"),
        "--held-out",
        str(run / "other.csv"),
    ]
    for text, words in (
        ("channels=3", "the traces have 2 channels"),
        ("focus=1", "the traces have no channels that come first"),
        ("kernel=boolean", "robustness"),
    ):
        result = CliRunner().invoke(app, [*command, "--set", text, "--out", str(tmp_path)])
        assert result.exit_code == 2 and words in result.output
    command = [
        "train",
        "decoder",
        "--set",
        f"model={run / 'run' / 'model'}",
        "--out",
        str(tmp_path),
    ]
    for text, words in (("points=9", "25 points"), ("dimension=7", "the dimension 128")):
        result = CliRunner().invoke(app, [*command, "--set", text])
        assert result.exit_code == 2 and f"the model has {words}; leave it out" in result.output


def test_a_model_with_a_wrong_schema_is_refused(run: Path, tmp_path: Path) -> None:
    model = rv.load(run / "run" / "model")
    model.save(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for schema, words in (
        ({"channels": [{"expression": "speed"}], "dt": 1.0}, "1 channels"),
        ({"channels": "speed"}, "of type list"),
        ("car", "JSON"),
    ):
        changed = config | {"schema": schema}
        changed[store.DIGEST] = store.digest_of(changed)
        path.write_text(json.dumps(changed))
        with pytest.raises(RhovecError, match=words):
            rv.load(tmp_path)
