"""A model folder gives back what was saved, or says what is wrong with it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

import rhovec as rv
from rhovec.errors import RhovecError
from rhovec.files import locked
from rhovec.formula.schema import SchemaChannel
from rhovec.models import store

from .tiny import FACTS, save_tiny, tiny
from .tiny_decoder import save_tiny_decoder, tiny_decoder


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    config, tensors = tiny()
    for _ in range(2):  # a second time over the first
        store.save(tmp_path / "new" / "model", config.to_dict(), tensors, FACTS)
    read, back = store.read(tmp_path / "new" / "model")
    assert read["encoder"] == config.to_dict()
    assert {name: read[name] for name in FACTS} == FACTS
    assert read["corpus"] == {}
    assert set(back) == set(tensors)
    for name, array in back.items():
        assert array.dtype == np.float32
        stored = tensors[name].astype(np.float16 if array.ndim > 1 else np.float32)
        assert (array == stored).all()
    names = sorted(path.name for path in (tmp_path / "new" / "model").iterdir())
    assert names == ["README.md", "config.json", "encoder.safetensors"]


def test_weights_are_stored_small(tmp_path: Path) -> None:
    stored = load((save_tiny(tmp_path) / store.WEIGHTS).read_bytes())
    assert {array.dtype for array in stored.values() if array.ndim > 1} == {np.dtype("float16")}
    assert {array.dtype for array in stored.values() if array.ndim == 1} == {np.dtype("float32")}


def test_the_card_says_what_the_config_says(tmp_path: Path) -> None:
    card = (save_tiny(tmp_path) / store.CARD).read_text()
    assert card.startswith("---\nlibrary_name: rhovec\n")
    digest = json.loads((tmp_path / store.CONFIG).read_text())["sha256"][store.WEIGHTS]
    for text in (digest, "| sigma2 | 0.2 |", "| alignment | a \\| b | 7 | 0.9877 |",
                 "| left bound | 75 | None |"):  # fmt: skip
        assert text in card


@pytest.mark.parametrize(
    "channels",
    [
        [('`wind "speed"`', -1.23456e-7)],
        [("y_2 - y_1", 123456.7), ("gear", 0.0), ("rpm", 1.0)],
    ],
)
def test_the_card_of_a_model_of_own_traces_uses_its_channels(
    tmp_path: Path, channels: list[tuple[str, float]]
) -> None:
    config, tensors = tiny(channels=len(channels))
    schema = rv.Schema(tuple(SchemaChannel(name, mean) for name, mean in channels), 0.3)
    facts = {"teacher": {"sigma2": 0.2}, "schema": json.loads(schema.to_json())}
    store.save(tmp_path, config.to_dict(), tensors, facts)
    lines = (tmp_path / store.CARD).read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("model.embed")]
    examples = json.loads(line.partition("(")[2].partition(")  #")[0])
    names = [channels[0][0], channels[min(1, len(channels) - 1)][0]]
    assert all(name in text for name, text in zip(names, examples, strict=True))
    assert rv.load(tmp_path).embed(examples, warn=False).shape == (2, 24)


def altered(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A change of config.json by someone who corrects its digest, too."""

    def apply(folder: Path) -> None:
        config = json.loads((folder / store.CONFIG).read_text())
        change(config)
        config[store.DIGEST] = store.digest_of(config)
        (folder / store.CONFIG).write_text(json.dumps(config))

    return apply


def exchanged(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], None]:
    """A change of the weights by someone who corrects the hash, too."""

    def apply(folder: Path) -> None:
        tensors = load((folder / store.WEIGHTS).read_bytes())
        change(tensors)
        replace(folder, save(tensors))

    return apply


def replace(folder: Path, data: bytes) -> None:
    (folder / store.WEIGHTS).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    altered(lambda c: c["sha256"].update({store.WEIGHTS: digest}))(folder)


def cut(name: str, share: float) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(share * len(data))])

    return apply


def flip(folder: Path) -> None:
    data = bytearray((folder / store.WEIGHTS).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / store.WEIGHTS).write_bytes(bytes(data))


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (flip, "SHA-256 differs"),
    (cut(store.WEIGHTS, 0.9), "SHA-256 differs"),
    (cut(store.WEIGHTS, 0), "SHA-256 differs"),
    (cut(store.CONFIG, 0.5), "not JSON"),
    (lambda f: (f / store.CONFIG).write_bytes(b"\xff\xfe"), "not JSON"),
    (lambda f: (f / store.CONFIG).write_text("[]"), "has no format"),
    (lambda f: (f / store.CONFIG).unlink(), "there is no model in this folder"),
    (lambda f: (f / store.WEIGHTS).unlink(), "encoder.safetensors is missing"),
    (altered(lambda c: c.update(format=1)), "has format 1, and this rhovec reads 2"),
    (altered(lambda c: c.pop("teacher")), "teacher is missing"),
    (altered(lambda c: c["sha256"].update({"../x": ""})), "nothing else"),
    (altered(lambda c: c.pop("sha256")), "sha256 must name"),
    (altered(lambda c: c["encoder"].update(width=33)), "multiple of heads"),
    (altered(lambda c: c["encoder"].update(heads=0)), "heads must be a whole number from 1"),
    (altered(lambda c: c["encoder"].update(layers=True)), "layers must be a whole"),
    (altered(lambda c: c["encoder"].update(layers=10**12)), "to 65536, not 1000000000000"),
    (altered(lambda c: c["encoder"].update(pooling=3)), "pooling must be a word"),
    (altered(lambda c: c["encoder"].update(speed=3)), "has no speed"),
    (altered(lambda c: c["encoder"].pop("points")), "points must be"),
    (altered(lambda c: c["encoder"].update(layers=3)), "lacks the tensor blocks.2"),
    (altered(lambda c: c["encoder"].update(layers=1)), "the tensor blocks.1"),
    (altered(lambda c: c["encoder"].update(dimension=28)), "must have shape"),
    (altered(lambda c: c["encoder"].update(dimension=26)), "multiple of 4"),
    (altered(lambda c: c["encoder"].update(head="tail")), "head must be one of .*nystrom, projector"),
    (altered(lambda c: c["teacher"]["measure"].update(points=10**7)), "points 10000000, but"),
    (altered(lambda c: c["teacher"]["measure"].update(n_variables=10**7)), "n_variables 100"),
    (altered(lambda c: c["teacher"]["measure"].pop("points")), "points None, but"),
    (
        altered(lambda c: (c["encoder"].update(points=999), c["teacher"]["measure"].update(points=999))),
        "inputs.weight must have shape",
    ),
    (altered(lambda c: c["range"].update(size={"largest": 1})), "range has size"),
    (altered(lambda c: c["range"].update(nodes={})), "the largest nodes"),
    (altered(lambda c: c["range"].update(nodes={"largest": 1, "error": "x"})), "error of nodes"),
    (exchanged(lambda t: t.pop("head.norm.bias")), "lacks the tensor head.norm.bias"),
    (exchanged(lambda t: t["head.norm.bias"].fill(np.nan)), "finite"),
    (exchanged(lambda t: t.update({"head.norm.bias": np.ones(32, int)})), "finite"),
    (lambda f: replace(f, b"pickle" * 9), "not a safetensors file"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_is_not_whole_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    save_tiny(tmp_path)
    store.read(tmp_path)
    damage(tmp_path)
    with pytest.raises(RhovecError, match=message):
        store.read(tmp_path)


def test_a_flipped_bit_in_the_config_is_noticed(tmp_path: Path) -> None:
    facts = FACTS | {"training": {7: 0.1, 10: np.float64(1 / 3), "è": None}}  # as JSON has them
    config, tensors = tiny(channels=2)
    facts["teacher"] = {"sigma2": 0.2}
    facts["schema"] = json.loads(two_channels(std=2.0).to_json())
    store.save(tmp_path, config.to_dict(), tensors, facts)
    path = tmp_path / store.CONFIG
    whole, saved = store.read(tmp_path)[0], path.read_bytes()
    for place in range(len(saved)):
        path.write_bytes(
            saved[:place] + bytes([saved[place] ^ 1 << place % 7]) + saved[place + 1 :]
        )
        try:
            read = store.read(tmp_path)[0]
        except RhovecError:
            continue
        read.pop(store.DIGEST, None)  # or the bit was in white space, or in this name
        assert {**read, store.DIGEST: whole[store.DIGEST]}.items() >= whole.items()
    assert rv.load("default").config[store.DIGEST]


def test_a_config_without_a_digest_is_of_an_older_model(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    read = store.read(tmp_path)[0]
    del read[store.DIGEST]
    (tmp_path / store.CONFIG).write_text(json.dumps(read))
    assert store.read(tmp_path)[0] == read


def test_the_fingerprint_depends_on_the_schema(tmp_path: Path) -> None:
    config, tensors = tiny(channels=2)
    facts: dict[str, Any] = {"teacher": {"sigma2": 0.2}}
    for std in (1.0, 2.0, 2.0):
        more = {"schema": json.loads(two_channels(std).to_json())}
        store.save(tmp_path / str(std), config.to_dict(), tensors, facts | more)
    store.save(tmp_path / "none", config.to_dict(), tensors, facts)
    one, two, none = (rv.load(tmp_path / name) for name in ("1.0", "2.0", "none"))
    assert len({model.fingerprint for model in (one, two, none)}) == 3
    assert rv.load(tmp_path / "2.0").fingerprint == two.fingerprint
    assert none.fingerprint == none.config["sha256"][store.WEIGHTS][:12]


def two_channels(std: float) -> rv.Schema:
    return rv.Schema((SchemaChannel("speed", std=std), SchemaChannel("rpm")))


def test_what_cannot_be_a_model_is_not_saved(tmp_path: Path) -> None:
    config, tensors = tiny()
    large = {**tensors, "blocks.0.up": tensors["blocks.0.up"] * 1e6}
    file = tmp_path / "file"
    file.write_text("")
    for target, shape, weights, facts, message in (
        (tmp_path / "a", config.to_dict(), large, {}, "finite"),
        (tmp_path / "a", config.to_dict(), {}, {}, "lacks"),
        (tmp_path / "a", {**config.to_dict(), "width": 64}, tensors, {}, "shape"),
        (tmp_path / "a", config.to_dict(), tensors, {"size": 1}, "no size"),
        (tmp_path / "a", config.to_dict(), tensors, {"range": []}, "range is missing"),
        (file, config.to_dict(), tensors, {}, "cannot be written"),
    ):
        with pytest.raises(RhovecError, match=message):
            store.save(target, shape, weights, facts)
    assert not (tmp_path / "a").exists()
    with pytest.raises(RhovecError, match="is not a folder"):
        store.read(tmp_path / "a")


@pytest.mark.parametrize("after", [False, True])
def test_an_interruption_leaves_the_old_model_or_the_new_one(
    after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before and after each file takes its place, with a decoder and without."""
    move, moves = os.replace, [0]

    def interrupted(source: Any, target: Any) -> None:
        moves[0] -= 1
        if moves[0] == -1 and not after:
            raise KeyboardInterrupt
        move(source, target)
        if moves[0] == -1:
            raise KeyboardInterrupt

    def content(folder: Path) -> tuple[bytes, bool]:
        tensors = store.read(folder)[1]["head.norm.bias"].tobytes()
        return tensors, store.read_decoder(folder) is not None

    config, tensors = tiny()
    tensors["head.norm.bias"] += 1
    decoder = tiny_decoder()
    steps: list[Callable[[Path], None]] = [
        lambda f: store.save(f, config.to_dict(), tensors, FACTS),
        lambda f: store.save_decoder(f, decoder[0].to_dict(), decoder[1], {}),
    ]
    save_tiny(tmp_path / "0")
    old = content(tmp_path / "0")
    for i, step in enumerate(steps):
        shutil.copytree(tmp_path / str(i), tmp_path / str(i + 1))
        step(tmp_path / str(i + 1))
        new = content(tmp_path / str(i + 1))
        assert old != new
        found = set()
        for k in range(4):  # weights, config, weights again, card
            folder = tmp_path / f"{i} {k}"
            shutil.copytree(tmp_path / str(i), folder)
            moves[0] = k
            with monkeypatch.context() as patch:
                patch.setattr(os, "replace", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    step(folder)
            assert content(folder) in (old, new)
            found.add(content(folder))
            rv.load(folder).save(tmp_path / f"copy {i} {k}")
            assert content(tmp_path / f"copy {i} {k}") == content(folder)
            step(folder)
            assert content(folder) == new and not list(folder.glob(".*"))
        assert found == {old, new}
        old = new


def test_a_saver_waits_for_another(tmp_path: Path) -> None:
    left = tmp_path / f".rhovec-locked-{'0' * 16}.tmp"
    left.write_bytes(b"traces")  # of a saver that was killed
    with locked(tmp_path):
        saving = threading.Thread(target=save_tiny, args=(tmp_path,))
        saving.start()
        saving.join(0.3)
        assert saving.is_alive() and left.exists()
    saving.join()
    store.read(tmp_path)
    assert not left.exists()


def test_a_model_saved_beside_a_decoder_comes_before_or_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny(tmp_path)
    inner = store._decoder_bytes
    other = threading.Thread(target=lambda: save_tiny(tmp_path, dimension=48))

    def meanwhile(tensors: Any) -> bytes:
        other.start()
        other.join(0.3)
        return inner(tensors)

    monkeypatch.setattr(store, "_decoder_bytes", meanwhile)
    config, tensors = tiny_decoder()
    store.save_decoder(tmp_path, config.to_dict(), tensors, {})
    other.join()
    assert store.read(tmp_path)[0]["encoder"]["dimension"] == 48
    assert store.read_decoder(tmp_path) is None


def test_a_decoder_comes_back_beside_the_encoder(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    encoder = store.read(tmp_path)
    assert store.read_decoder(tmp_path) is None
    facts = {"training": {"steps": 7}, "evaluation": [{"measure": "cosine", "value": 0.5}]}
    config, tensors = tiny_decoder()
    for _ in range(2):  # a second time over the first
        store.save_decoder(tmp_path, config.to_dict(), tensors, facts)
    found = store.read_decoder(tmp_path)
    assert found is not None
    assert found[0] == config
    assert set(found[1]) == set(tensors)
    for name, array in found[1].items():
        assert array.dtype == np.float32
        if array.ndim == 1:
            assert (array == tensors[name]).all()
        else:  # by at most half of a step, 1/127 of the largest number of its row
            steps = np.abs(tensors[name]).max(-1, keepdims=True) / 127
            assert (np.abs(array - tensors[name]) <= 0.501 * steps).all()
            again = store.from_int8(*store.to_int8(array))
            assert np.allclose(again, array, rtol=1e-6, atol=0)
    sizes = [array.nbytes for array in load((tmp_path / store.DECODER).read_bytes()).values()]
    assert sum(sizes) < 0.4 * sum(array.nbytes for array in tensors.values())
    read, back = store.read(tmp_path)
    assert read["decoder"] == {"config": config.to_dict(), **facts}
    assert {name: read[name] for name in FACTS} == {name: encoder[0][name] for name in FACTS}
    assert all((back[name] == array).all() for name, array in encoder[1].items())
    card = (tmp_path / store.CARD).read_text()
    for text in ("## Decoder", "| steps | 7 |", "| cosine | 0.5 |", *read["sha256"].values()):
        assert text in card
    save_tiny(tmp_path)  # another encoder, so no decoder
    assert store.read_decoder(tmp_path) is None


def rewrite_decoder(folder: Path, tensors: dict[str, np.ndarray], number: int) -> None:
    """Store tensors as they are, in a model of this format."""
    (folder / store.DECODER).write_bytes(save(tensors))
    config = json.loads((folder / store.CONFIG).read_text())
    config["format"] = number
    digest = hashlib.sha256((folder / store.DECODER).read_bytes()).hexdigest()
    config["sha256"][store.DECODER] = digest
    config[store.DIGEST] = store.digest_of(config)
    (folder / store.CONFIG).write_text(json.dumps(config))


def test_decoders_of_format_2_are_read(tmp_path: Path) -> None:
    save_tiny_decoder(tmp_path)
    _, tensors = tiny_decoder()
    half = {n: a.astype(np.float16 if a.ndim > 1 else np.float32) for n, a in tensors.items()}
    rewrite_decoder(tmp_path, half, 2)
    found = store.read_decoder(tmp_path)
    assert found is not None
    assert all((array == half[name]).all() for name, array in found[1].items())
    assert rv.load(tmp_path).decode(np.ones(24), samples=1, refine=False)


def test_scales_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_tiny_decoder(tmp_path)
    stored = dict(load((tmp_path / store.DECODER).read_bytes()))
    name = "output.weight"
    for change, message in (
        ({f"{name}.int8_scale": stored[f"{name}.int8_scale"][1:]}, "does not fit the matrix"),
        ({f"{name}.int8_scale": stored[f"{name}.int8_scale"] * np.float32(np.nan)}, "finite"),
        ({name: stored[name].astype(np.float32)}, "does not fit the matrix"),
        ({"none.int8_scale": stored[f"{name}.int8_scale"]}, "does not fit the matrix"),
        ({f"{name}.int8_scale": None}, "must hold finite numbers"),
        ({name: np.zeros((), np.int8)}, "does not fit the matrix"),
        ({name: np.zeros((626, 0), np.int8)}, "does not fit the matrix"),
    ):
        changed = {k: v for k, v in (stored | change).items() if v is not None}
        rewrite_decoder(tmp_path, changed, 3)
        with pytest.raises(RhovecError, match=message):
            store.read_decoder(tmp_path)


DECODER_DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (cut(store.DECODER, 0.9), "decoder.safetensors is not the file that was saved"),
    (lambda f: (f / store.DECODER).unlink(), "decoder.safetensors is missing"),
    (altered(lambda c: c.pop("decoder")), "encoder.safetensors and nothing else"),
    (altered(lambda c: c["sha256"].pop(store.DECODER)), "and decoder.safetensors and nothing"),
    (altered(lambda c: c.update(decoder=3)), "config of the decoder is missing"),
    (altered(lambda c: c["decoder"].update(training=3)), "training of the decoder is missing"),
    (altered(lambda c: c["decoder"]["config"].update(dimension=25)), "of 25 numbers"),
    (altered(lambda c: c["decoder"]["config"].update(heads=5)), "multiple of heads"),
    (altered(lambda c: c["decoder"]["config"].update(prefix=-1)), "decoder's prefix must be"),
    (altered(lambda c: c["decoder"]["config"].update(speed=1)), "the decoder has no speed"),
    (altered(lambda c: c["decoder"]["config"].update(length=99)), "must have shape"),
]


@pytest.mark.parametrize(("damage", "message"), DECODER_DAMAGES)
def test_a_decoder_that_is_not_whole_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    save_tiny_decoder(tmp_path)
    damage(tmp_path)
    with pytest.raises(RhovecError, match=message):
        store.read_decoder(tmp_path)


def test_what_cannot_be_a_decoder_is_not_saved(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    before = (tmp_path / store.CONFIG).read_bytes()
    config, tensors = tiny_decoder()
    for shape, weights, facts, message in (
        ({**config.to_dict(), "dimension": 32}, tensors, {}, "of 32 numbers"),
        ({**config.to_dict(), "layers": 3}, tensors, {}, "lacks the tensor blocks.2"),
        (config.to_dict(), {**tensors, "norm.bias": np.full(32, np.nan)}, {}, "finite"),
        (config.to_dict(), tensors, {"teacher": {}}, "a decoder has no teacher"),
    ):
        with pytest.raises(RhovecError, match=message):
            store.save_decoder(tmp_path, shape, weights, facts)
    assert (tmp_path / store.CONFIG).read_bytes() == before
    with pytest.raises(RhovecError, match="is not a folder"):
        store.save_decoder(tmp_path / "none", config.to_dict(), tensors, {})
