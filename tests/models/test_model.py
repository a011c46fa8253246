"""What a user holds: one vector a formula however written, warnings, clear errors."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import rhovec as rv
from rhovec.errors import FormulaError, MissingDependencyError, ParseError, RhovecError
from rhovec.formula.programs import Programs
from rhovec.models import model as models
from rhovec.models import store
from rhovec.models.model import Finding, Model, RhovecWarning, load

from .tiny import save_tiny
from .tiny_decoder import save_tiny_decoder

FORMULAE = rv.random_formulae(60, seed=11)
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(folder)


def test_shapes_as_everywhere(model: Model) -> None:
    many = model.embed(FORMULAE)
    assert many.shape == (60, model.dimension)
    assert many.dtype == np.float32
    assert np.allclose(np.linalg.norm(many, axis=1), 1, atol=1e-6)
    assert model.embed(FORMULAE[:1]).shape == (1, model.dimension)
    assert np.abs(model.embed(FORMULAE[3]) - many[3]).max() <= 1e-5
    assert np.abs(model.embed(map(str, FORMULAE)) - many).max() == 0
    both = model.similarity(FORMULAE[:3], FORMULAE[3:5])
    cosines = model.embed(FORMULAE[:5], kind="cosine")
    assert np.abs(both - np.exp(5 * (cosines[:3] @ cosines[3:].T - 1))).max() <= 1e-5
    assert model.similarity(FORMULAE[0], FORMULAE[3:5]).shape == (2,)
    assert model.similarity(FORMULAE[:3], FORMULAE[3]).shape == (3,)
    value = model.similarity(FORMULAE[0], str(FORMULAE[0]))
    assert isinstance(value, float)
    assert value == pytest.approx(1, abs=1e-6)


def test_cosine_vectors(model: Model, folder: Path, tmp_path: Path) -> None:
    """Their inner products are those from which the head makes kernel vectors."""
    cosines = model.embed(FORMULAE, kind="cosine")
    assert cosines.shape == (60, 96)
    assert cosines.dtype == np.float32
    assert np.allclose(np.linalg.norm(cosines, axis=1), 1, atol=1e-6)
    assert np.abs(model.embed(FORMULAE[3], kind="cosine") - cosines[3]).max() <= 1e-5
    projector = load(save_tiny(tmp_path, head="projector"))
    with pytest.raises(RhovecError, match="head, projector, has no vectors of kind cosine"):
        projector.embed(FORMULAE, kind="cosine")
    with pytest.raises(RhovecError, match='kind must be "kernel" or "cosine"'):
        model.embed(FORMULAE, kind="angle")  # type: ignore[arg-type]
    card = [(path / store.CARD).read_text() for path in (folder, tmp_path)]
    assert ['kind="cosine"' in text for text in card] == [True, False]
    pytest.importorskip("torch")
    again = load(folder, device="cpu").embed(FORMULAE, kind="cosine")
    assert np.abs(again - cosines).max() <= 1e-5


def test_cosine_vectors_of_the_shipped_model_are_closer_to_the_kernel(tmp_path: Path) -> None:
    shipped, formulae = load(), rv.random_formulae(200, seed=8)
    exact = shipped.kernel(n_traces=8192, seed=5).gram(formulae)
    kernel = shipped.embed(formulae)
    cosine = shipped.embed(formulae, kind="cosine").astype(np.float64)
    errors = [
        np.abs(similarity - exact).mean()
        for similarity in (kernel @ kernel.T, np.exp(-(1 - cosine @ cosine.T) / 0.2))
    ]
    assert errors[1] < 0.0025 < errors[0] < 0.005
    assert np.abs(shipped.similarity(formulae, formulae) - exact).mean() == pytest.approx(
        errors[1], abs=1e-5
    )
    projected = load(save_tiny(tmp_path / "projected", head="projector"))  # has kernel vectors only
    vectors = projected.embed(FORMULAE[:2])
    assert projected.similarity(*FORMULAE[:2]) == pytest.approx(float(vectors[0] @ vectors[1]))


def test_names_of_shipped_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is a shipped model, and a path a folder of one's own, even of the same name."""
    weights = tmp_path / "weights"
    first, second = save_tiny(weights / "default"), save_tiny(weights / "small", layers=1)
    own = save_tiny(tmp_path / "small", layers=3)
    monkeypatch.setattr(models, "SHIPPED", weights)
    monkeypatch.setattr(models, "DEFAULT", weights / "default")
    monkeypatch.chdir(tmp_path)
    assert models.shipped() == ["default", "small"]
    assert load().fingerprint == load("default").fingerprint == load(first).fingerprint
    assert load("small").fingerprint == load(second).fingerprint
    assert load("./small").fingerprint == load(own).fingerprint
    assert len({load(name).fingerprint for name in (None, "small", "./small")}) == 3
    with pytest.raises(RhovecError, match="shipped models: default, small"):
        load("smaller")


def test_blocks_do_not_matter(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model.embed(FORMULAE)
    monkeypatch.setattr(models, "BLOCK", 2000)
    shares: list[float] = []
    assert np.abs(model.embed(FORMULAE, progress=shares.append) - whole).max() <= 1e-5
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize(
    "spellings",
    [
        ("G[0,10] (x_0 >= .3 & !(x_1 < 2))", "always[0,10]((x_0>=0.30 and not x_1 < 2e0))"),
        ("x_0 > 1 -> F x_1 < 2", "(not (x_0 > 1)) or eventually[0,inf] 2 > x_1"),
        ("next x_0 > 1", "eventually[1,1] x_0 > 1"),
        ("x_0 >= 1 <-> x_1 >= 2", "(x_0>=1 & x_1>=2) | (!(x_0>=1) & !(x_1>=2))"),
        ("x_0 > 1 and true", "x_0 > 1"),
        ("x_0 - 1 > x_0 - x_2", "x_2 > 1"),
    ],
)
def test_one_formula_has_one_vector(model: Model, spellings: tuple[str, str]) -> None:
    first, second = model.embed(list(spellings))
    assert np.abs(first - second).max() <= 1e-5  # BLAS may round them differently


def test_what_means_something_else_has_another_vector(model: Model) -> None:
    texts = ["always eventually x_0 > 1", "eventually always x_0 > 1", "x_0 > 1", "x_1 > 1"]
    values = model.similarity(texts, texts)
    assert values[~np.eye(4, dtype=bool)].max() < 0.9999


def test_the_torch_model_is_the_same(model: Model, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    other = load(folder, device="cpu")
    torch.set_float32_matmul_precision("high")
    try:
        assert np.abs(other.embed(FORMULAE) - model.embed(FORMULAE)).max() <= 1e-5
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert repr(other) == f"Model(24 dimensions, {model.fingerprint}, torch on cpu)"
    with pytest.raises(FormulaError, match="knows x_0"):
        other.embed("x_8 > 1")
    with pytest.raises(FormulaError, match="threshold"):
        other.embed("x_0 > 1e39")


def test_text_models_run_with_torch(tmp_path: Path) -> None:
    save_tiny(tmp_path, tokens="text")
    with pytest.raises(MissingDependencyError, match="text tokens"):
        load(tmp_path)
    pytest.importorskip("torch")
    text = load(tmp_path, device="cpu")
    assert np.abs(text.embed(FORMULAE[:9])[::-1] - text.embed(FORMULAE[8::-1])).max() <= 1e-5


def test_the_teacher_is_the_kernel_of_the_config(model: Model, folder: Path) -> None:
    kernel = model.kernel(n_traces=64, seed=3)
    assert kernel == rv.StlKernel(rv.BaseMeasure(n_variables=8), 64, 0.2, 3)
    config, tensors = store.read(folder)
    bare = Model({**config, "teacher": {}}, tensors)
    with pytest.raises(RhovecError, match="distilled from a kernel, which it cannot make"):
        bare.kernel()


def test_what_lies_outside_is_flagged(model: Model) -> None:
    assert model.outside(FORMULAE) == []
    deep = "not " * 10 + "x_0 > 1"
    texts = [
        "x_0 > 6.5 and always[75,99] x_1 < 0", "x_0 > -7 and x_1 <= 8", "always[76,inf] x_0 > 1",
        "eventually[2,100] x_0 > 1", deep, " and ".join(["x_0 > 1"] * 33),
    ]  # fmt: skip
    found = model.outside(texts)
    assert sorted(found, key=lambda f: (f.index, f.kind)) == [
        Finding(1, "threshold", 8.0, 6.5, 0.034),
        Finding(2, "left bound", 76, 75, None),
        Finding(3, "right bound", 100, 99, None),
        Finding(4, "depth", 10, 9, 0.05),
        Finding(5, "depth", 32, 9, 0.05),
        Finding(5, "nodes", 65, 63, None),
    ]
    with pytest.warns(RhovecWarning) as caught:
        loud = model.embed(texts)
    (line,) = [str(w.message) for w in caught]
    assert caught[0].filename == __file__
    assert "\n" not in line
    for part in (
        "5 of 6 formulae", "1 with a threshold beyond ±6.5 in the model's units (mean error 0.034)",
        "2 with a depth above 9 (mean error 0.05)", "1 with more nodes than 63 (mean error not",
    ):  # fmt: skip
        assert part in line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (model.embed(texts, warn=False) == loud).all()
        model.embed(texts[0])


@pytest.mark.parametrize(
    ("formulae", "error", "message"),
    [
        ("x_8 > 1", FormulaError, r"uses x_8; the model knows x_0 \.\.\. x_7"),
        ("speed > 1", FormulaError, "Schema"),
        ("x_0 - x_1 > 1", FormulaError, "Schema"),
        ("true", FormulaError, "constant"),
        ("x_0 > 1 or true", FormulaError, "constant"),
        ([], FormulaError, "empty"),
        ("x_0 >", ParseError, "line 1"),
        ("x_0 > 1e39", FormulaError, r"threshold 1e\+39, and a model reads up to 3.4e\+38; bring"),
        ("x_0 < 1 and x_1 >= -1e300", FormulaError, r"threshold -1e\+300, .* exact kernel"),
        (" and ".join(["x_0 > 1"] * 1002), FormulaError, "2,003 nodes; a model reads 2,000"),
    ],
)
def test_mistakes_are_named(
    model: Model, formulae: list[str] | str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model.embed(formulae)


def test_where_models_come_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(models, "DEFAULT", tmp_path / "nothing")
    with pytest.raises(RhovecError, match="no default model"):
        load()
    monkeypatch.setattr(models, "DEFAULT", folder)
    assert load().fingerprint == load(str(folder)).fingerprint
    for path in ("nowhere", "no/where/at/all", "../nowhere", tmp_path / "nothing"):
        with pytest.raises(RhovecError, match="is not a folder"):
            load(path)
    with pytest.raises(RhovecError, match="device must be"):
        load(folder, device="abacus")


def test_models_of_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match="pip install huggingface_hub"):
        load("someone/model")
    asked: list[str] = []

    class Hub:
        @staticmethod
        def snapshot_download(name: str, allow_patterns: list[str]) -> str:
            asked.append(name)
            if name != "someone/model":
                raise OSError("404\nmany\nmore lines")
            assert set(allow_patterns) == {
                "config.json", "encoder.safetensors", "decoder.safetensors", "traces.safetensors",
                "README.md",
            }  # fmt: skip
            return str(folder)

    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub)
    assert load("someone/model").fingerprint == load(folder).fingerprint
    with pytest.raises(RhovecError, match=r"and the hub does not have it: 404$"):
        load("someone/else")
    assert asked == ["someone/model", "someone/else"]


def test_the_first_embedding_loads_nothing_heavy(folder: Path) -> None:
    """No torch, and no compiler for a handful of formulae."""
    command = (
        "import sys, rhovec; from rhovec.models.model import load\n"
        f"load({str(folder)!r}).embed(['always[0,10] x_0 > 1', 'x_1 > 0 until x_2 < 3'])\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    run = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not set(run.stdout.split()) & {"torch", "numba", "llvmlite", "typer", "rich", "scipy"}


def test_packed_formulae_and_their_texts_are_the_same(model: Model) -> None:
    """Many texts are read at once, by code of its own; constants and `->` among them are rewritten."""
    formulae = [*FORMULAE, rv.parse("x_0 > 1 -> next x_1 < 2"),
                rv.parse("(true and x_1 < 3) <-> x_0 >= 0")]  # fmt: skip
    single = np.stack([model.embed(phi, warn=False) for phi in formulae])
    for given in ([str(phi) for phi in formulae], formulae, Programs.pack(formulae)):
        assert np.abs(model.embed(given, warn=False) - single).max() < 1e-5


@pytest.mark.gpu
def test_the_gpu_gives_the_same_vectors() -> None:
    formulae = rv.random_formulae(300, seed=4)
    assert np.abs(rv.load(device="cuda").embed(formulae) - rv.load().embed(formulae)).max() < 1e-4


def test_saving_and_loading_gives_the_model_back(tmp_path: Path) -> None:
    source = save_tiny_decoder(tmp_path / "source")
    model = load(source)
    model.save(tmp_path / "copy")
    copy = load(tmp_path / "copy")
    assert copy.config == model.config
    assert np.array_equal(copy.embed(FORMULAE), model.embed(FORMULAE))
    assert store.read_decoder(tmp_path / "copy") is not None
    for name in ("config.json", "README.md", "encoder.safetensors", "decoder.safetensors"):
        assert (tmp_path / "copy" / name).read_bytes() == (source / name).read_bytes()


def test_a_folder_that_changed_since_is_not_saved(tmp_path: Path) -> None:
    model = load(save_tiny(tmp_path / "source"))
    (tmp_path / "source" / "encoder.safetensors").write_bytes(b"another model")
    with pytest.raises(RhovecError, match="SHA-256"):
        model.save(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
