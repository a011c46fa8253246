"""Costs: what is measured, what is projected, and what a worker says when memory runs out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from reproduction import efficiency as module
from reproduction.efficiency import OUT_OF_MEMORY, efficiency, worker
from rhovec.errors import RhovecError

TEXTS = [f"always[0,{i + 3}] ( x_0 >= 0.{i} )" for i in range(64)]


def assert_measured(rows: list[dict[str, Any]], device: str) -> None:
    names = [row["measure"] for row in rows]
    assert len(set(names)) == len(names) == 13
    assert {row["side"] for row in rows} == {"kernel", "encoder", "reader"}
    for side in ("kernel", "encoder"):  # both from the same texts and from the same parsed batch
        loaded = {r["what"] for r in rows if (r["side"], r["state"]) == (side, "loaded")}
        assert loaded == {"embed", "pairs", "embed parsed", "pairs parsed"}
    assert [r["what"] for r in rows if r["side"] == "reader"] == ["parse"]
    for row in rows:
        assert 0 < row["low"] <= row["value"] <= row["high"]
        assert row["ram_mb"] > 20 and row["memory_mb"] == pytest.approx(
            row["ram_mb"] + row["vram_mb"]
        )
        assert (row["vram_mb"] > 0) == (device != "cpu")
        assert row["n"] == (1 if row["state"] == "full" else 2)
        assert not row["projected"]


def test_a_cell_of_each_side() -> None:
    shares: list[float] = []
    rows = efficiency(TEXTS, sizes=(3,), traces=(16,), points=20, repeats=2, progress=shares.append)
    assert_measured(rows, "cpu")
    assert shares == [0.5, 1]


@pytest.mark.gpu
def test_a_cell_of_each_side_on_a_gpu() -> None:
    rows = efficiency(TEXTS, sizes=(3,), traces=(16,), points=20, repeats=2, device="cuda")
    assert_measured(rows, "cuda")


def work(order: dict[str, Any]) -> tuple[list[dict[tuple[str, str], dict[str, float]]], bool]:
    """A machine on which embed takes B N / 10^6 seconds, pairs B^2 N / 10^6, and N = 400 fails."""
    n = order["N"] or 1
    return [
        {
            key: {"n": 1, "memory_mb": 100.0}
            | dict.fromkeys(("value", "low", "high"), b**power * n / 1e6)
            for key, power in ((("embed", "full"), 1), (("pairs parsed", "full"), 2))
        }
        for b in order["sizes"]
        if n != 400 and b**2 * n / 1e6 <= order["budget"]
    ], n != 400


def test_what_does_not_fit_is_projected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_measure", work)
    monkeypatch.setattr(module.StlKernel, "__post_init__", lambda self: None)
    rows = efficiency(
        TEXTS * 2, sizes=(32, 64, 128), traces=(100, 200, 400), points=1000, budget=2.0
    )
    assert len(rows) == 2 * (3 + 9)
    for row in rows:
        b, n = row["B"], row["N"] or 1
        power = 1 if row["what"] == "embed" else 2
        assert row["value"] == pytest.approx(b**power * n / 1e6)  # exact for this machine
        slow, large = b**2 * n / 1e6 > 2, n == 400
        assert row["projected"] == (slow or large)
        if row["projected"]:
            assert ("more than 2 s" in row["why"]) == slow
            assert row["n"] == 0
        else:
            assert row["memory_mb"] == 100
    held = {row["measure"]: row["memory_mb"] for row in rows}
    # 200 more traces of 3 variables and 1000 points, and 200 more float32 for each formula
    expected = 100 + 200 * (3 * 1000 * 4 + 32 * 4) / 1e6
    assert held["embed, kernel, full, B = 32, N = 400"] == pytest.approx(expected)


def test_a_process_ends_before_a_call_that_takes_too_long() -> None:
    order = {"device": "cpu", "model": None, "points": 20, "seed": 0, "texts": TEXTS, "N": 16,
             "sizes": [2, 4, 8], "repeats": 1}  # fmt: skip
    assert len([*module._cells(order | {"budget": 1e9})]) == 3
    assert len([*module._cells(order | {"budget": 0.0})]) == 1


def test_what_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RhovecError, match="B = 65 needs as many"):
        efficiency(TEXTS, sizes=(65,))
    with pytest.raises(RhovecError, match='device must be "cpu" or "cuda"'):
        efficiency(TEXTS, sizes=(3,), device="tpu")
    with pytest.raises(RhovecError, match=r"measuring failed: .*nowhere"):
        efficiency(TEXTS, sizes=(3,), model="nowhere")
    monkeypatch.setattr(module, "_measure", lambda order: ([], False))
    with pytest.raises(RhovecError, match="not even B = 3 fits"):
        efficiency(TEXTS, sizes=(3,))


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize("error", [MemoryError(), OutOfMemoryError()])
def test_a_worker_that_runs_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fails(order: dict[str, Any]) -> Iterator[dict[tuple[str, str], int]]:
        yield {("embed", "full"): 1}
        raise error

    monkeypatch.setattr(module, "_cells", fails)
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}"))
    with pytest.raises(SystemExit) as exit:
        worker()
    assert exit.value.code == OUT_OF_MEMORY
    assert capsys.readouterr().out == '[["embed", "full", 1]]\n'
