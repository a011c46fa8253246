"""Tables of recorded trainings: ablations of the encoder, and decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rhovec.evaluation.reconstruction import constant_sign, spread

from .lines import interval_text, plain
from .paper import Row

DECODER_PAPER = "0.8688 [0.465, 0.980]"  # cosine; 453 of 3000 formulae were left out
ABLATIONS_SAY = (
    "Short trainings that differ from the shipped recipe, cut short, in one respect; the paper varies "
    "only the pooling. The exceptions: tree and text tokens are to be compared with each other; "
    'trainings "from the shipped weights" keep the batches of the shipped recipe and half its rates; '
    "AdamW has its own learning rate; the paper's recipe differs in everything. Errors are measured "
    "against a kernel on fresh traces with as many points as in training: 1000 points give another, "
    "easier kernel, so compare those rows only with each other. Intervals are 95 % bootstrap intervals "
    "over formulae or families. Each training was run once, so differences of a few per cent may be "
    "chance. Seconds are training time, with compilation, while up to five trainings shared the GPU. "
    "The weights were not kept; each run's configuration, log and command are in results/ablations."
)
DECODERS_SAY = (
    "Decoders from random weights, each trained once, on the vectors of a frozen encoder or on exact "
    "kernel values to fixed anchors. Ours writes prefix tokens that the grammar constrains, and learns "
    "simplest forms; the paper's writes text, and learns the corpus as it is. The paper trains its "
    "decoder for five epochs, about 32,000 steps of 512 formulae; here each schedule ends with the "
    "steps in the table. Answers are greedy and not verified. None is left out: an answer that is no "
    "formula has cosine 0. Cosine and correlation of robustness vectors are medians with 95 % "
    "intervals, and quartiles in brackets. The weights were not kept; each run's configuration, log and "
    "command are in results/decoders."
)


class Training(NamedTuple):
    """Table of trainings on one set: its title, heads, cells as text, and a closing sentence."""

    where: str
    heads: Sequence[str]
    body: list[list[str]]
    about: str = ""


def ablation_table(rows: Sequence[Row]) -> tuple[str, list[Training]]:
    """Introduction and a table per set, the smallest error first."""
    heads = ("training", "parameters", "steps", "seconds", "points", "n", "mean absolute error",
             "interval", "alignment", "equivalent", "lexically similar")  # fmt: skip
    out = []
    for where in dict.fromkeys(row["set"] for row in rows):
        here = sorted((row for row in rows if row["set"] == where), key=lambda row: row["value"])
        out.append(Training(where, heads, [
            [
                row["measure"], f"{row['parameters'] / 1e6:.1f} M", plain(row["steps"]),
                f"{row['seconds']:.0f}", plain(row["points"]), plain(row["n"]), plain(row["value"]),
                interval_text(row, "value"), plain(row["alignment"]), plain(row["equivalent"]),
                plain(row["lexical"]),
            ]
            for row in here
        ]))  # fmt: skip
    return ABLATIONS_SAY, out


def decoder_table(rows: Sequence[Row]) -> tuple[str, list[Training]]:
    """Introduction and a table per set of requests."""
    heads = ("decoder", "parameters", "steps", "batch", "seconds", "cosine", "centred correlation",
             "valid", "nodes, in and out")  # fmt: skip
    out = []
    for where, digest, n in dict.fromkeys((r["set"], r["sha256"], r["requests"]) for r in rows):
        chosen = [r for r in rows if (r["sha256"], r["requests"]) == (digest, n)]
        body = [
            ["the paper's, 453 of 3000 left out", "", "", "", "", DECODER_PAPER, "", "84.9 %", ""]
        ]
        for words in dict.fromkeys(row["words"] for row in chosen):
            here = {row["measure"]: row for row in chosen if row["words"] == words}
            row = here["cosine"]
            nodes = [here[m] for m in ("nodes of the formula", "nodes of the answer") if m in here]
            body.append([
                words, f"{row['parameters'] / 1e6:.1f} M", plain(row["steps"]), plain(row["batch"]),
                f"{row['seconds']:.0f}", spread(row), spread(here["centred correlation"]),
                f"{here['valid']['value']:.1%}", ", ".join(f"{row['value']:g}" for row in nodes),
            ])  # fmt: skip
        title = f"{where}: {n} requests (SHA-256 {digest[:12]}…)"
        out.append(Training(title, heads, body, constant_sign(here)))
    return DECODERS_SAY, out
