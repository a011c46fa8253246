"""A generator of traces that reads a formula's vector, so that what it makes satisfies the formula.

    python examples/conditioning.py            # small, to see it work: writes conditioning.json
    python examples/conditioning.py --full     # five seeds: writes results/conditioning.json and .md

A small network makes a trace of 2 channels and 20 points from noise and a condition. Gradients of exact
robustness teach it to satisfy the formula of the condition, on formulae drawn at random. It is measured
on formulae that it has never seen. Three conditions: the encoder's directions, which stay fixed; the
text of the formula, by a recurrent reader that is trained along with the network; and none, the best
that this training finds without knowing the formula. Random traces are a fourth row. Formulae that
hold on less than 5 % or more than 50 % of random traces are left out, as are those of more than 9 nodes.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import rhovec as rv
from rhovec import machine
from rhovec.tokens.text import CLS, encode

CHANNELS, POINTS, NOISE, WIDTH, CONDITION = 2, 20, 4, 128, 96
CONDITIONS = ("vector", "text", "none")


def formulae(count: int, seed: int) -> list[rv.Formula]:
    """Short random formulae that hold on 5 to 50 % of random traces."""
    traces = rv.BaseMeasure(n_variables=CHANNELS, points=POINTS).sample(1000, seed=seed)
    found: list[rv.Formula] = []
    block = 0
    while len(found) < count:
        drawn = rv.random_formulae(2000, seed=1000 * seed + block, n_variables=CHANNELS)
        short = [phi for phi in drawn if phi.size <= 9]
        share = rv.satisfaction(short, traces).mean(axis=1)
        found += [phi for phi, p in zip(short, share, strict=True) if 0.05 <= p <= 0.5]
        block += 1
    return found[:count]


class Reader(nn.Module):
    """The formula's text, symbol by symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.symbol = nn.Embedding(CLS + 1, 32)
        self.run = nn.GRU(32, CONDITION, batch_first=True)

    def forward(self, texts: list[list[int]]) -> Tensor:
        ids = nn.utils.rnn.pack_sequence(
            [self.symbol(torch.tensor(text)) for text in texts], enforce_sorted=False
        )
        return self.run(ids)[1][0]


class Generator(nn.Module):
    """Traces (B, channels, points) from conditions (B, CONDITION) and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(CONDITION + NOISE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, CHANNELS * POINTS),
        )  # fmt: skip

    def forward(self, condition: Tensor) -> Tensor:
        noise = torch.randn(len(condition), NOISE)
        flat = self.layers(torch.cat([math.sqrt(CONDITION) * condition, noise], dim=1))
        return 2 * flat.view(-1, CHANNELS, POINTS)


class Task:
    """Formulae to learn from and others to be measured on, their vectors and their texts."""

    def __init__(self, seed: int, sizes: argparse.Namespace):
        self.seed, self.sizes = seed, sizes
        train, test = formulae(sizes.train, 2 * seed + 1), formulae(sizes.test, 2 * seed + 2)
        seen = {str(phi) for phi in train}
        self.formulae = train + [phi for phi in test if str(phi) not in seen]
        self.texts = [encode(phi) for phi in self.formulae]
        encoder = rv.load().module(kind="cosine").requires_grad_(False)
        parts = [self.formulae[i : i + 256] for i in range(0, len(self.formulae), 256)]
        self.vectors = torch.cat([encoder(part) for part in parts])


def satisfied(condition: str, task: Task) -> float:
    """Share of generated traces that satisfy their formula, over unseen formulae."""
    sizes = task.sizes
    torch.manual_seed(task.seed)
    generator, reader = Generator(), Reader()

    def conditions(chosen: np.ndarray) -> Tensor:
        if condition == "vector":
            return task.vectors[chosen]
        if condition == "text":
            return reader([task.texts[i] for i in chosen])
        return torch.zeros(len(chosen), CONDITION)

    weights = [*generator.parameters(), *(reader.parameters() if condition == "text" else ())]
    optimiser = torch.optim.Adam(weights, lr=2e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, sizes.steps)
    rng = np.random.default_rng(task.seed)
    for _ in range(sizes.steps):
        chosen = rng.choice(sizes.train, sizes.batch, replace=False)
        traces = generator(conditions(chosen))
        some = [task.formulae[i] for i in chosen]
        own = rv.robustness(some, traces).diagonal()  # each formula on the trace made for it
        loss = nn.functional.softplus(-own / 0.2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        plan.step()
    unseen = np.arange(sizes.train, len(task.formulae))
    with torch.no_grad():
        made = generator(conditions(unseen).repeat_interleave(sizes.each, dim=0)).numpy()
    holds = [
        rv.satisfaction(phi, made[sizes.each * i : sizes.each * (i + 1)]).mean()
        for i, phi in enumerate(task.formulae[sizes.train :])
    ]
    return float(np.mean(holds))


def by_chance(task: Task) -> float:
    """Share of random traces that satisfy a formula, over unseen formulae."""
    traces = rv.BaseMeasure(n_variables=CHANNELS, points=POINTS).sample(
        1000, seed=10**6 + task.seed
    )
    return float(rv.satisfaction(task.formulae[task.sizes.train :], traces).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    full = parser.parse_args().full
    sizes = argparse.Namespace(
        **(
            {"train": 1500, "test": 300, "steps": 500, "batch": 32, "each": 10, "seeds": 5}
            if full
            else {"train": 64, "test": 16, "steps": 6, "batch": 8, "each": 4, "seeds": 1}
        )
    )
    began = time.perf_counter()
    tasks = [Task(seed, sizes) for seed in range(sizes.seeds)]
    shares = {name: [satisfied(name, task) for task in tasks] for name in CONDITIONS}
    shares["random"] = [by_chance(task) for task in tasks]
    ratios = np.array(shares["vector"]) / np.maximum(shares["none"], 1e-9)
    facts = {
        "command": "python examples/conditioning.py" + " --full" * full,
        "sizes": vars(sizes), "shares": shares, "ratios": ratios.tolist(),
        "seconds": time.perf_counter() - began, "machine": machine.facts("cpu"),
    }  # fmt: skip
    folder = Path(__file__).resolve().parents[1] / "results" if full else Path()
    (folder / "conditioning.json").write_text(json.dumps(facts, indent=1) + "\n")
    text = page(facts)
    if full:
        (folder / "conditioning.md").write_text(text)
    print(text)


def interval(values: list[float]) -> str:
    """Mean, and the 95 % interval of the mean by Student's t with four degrees of freedom."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    spread = 2.776 * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {spread:.3f}"


def page(facts: dict) -> str:  # type: ignore[type-arg]
    sizes, shares = facts["sizes"], facts["shares"]
    names = {
        "vector": "the formula's vector",
        "text": "its text",
        "none": "nothing",
        "random": "no generator: random traces",
    }
    host = ", ".join(f"{name} {value}" for name, value in facts["machine"].items())
    return "\n".join([
        "# Traces made to satisfy a formula", "",
        f"Command: `{facts['command']}`; seeds 0 to {sizes['seeds'] - 1}; "
        f"{facts['seconds']:.0f} s. Machine: {host}.", "",
        f"Share of {sizes['each']} traces per formula that satisfy it, over {sizes['test']} formulae "
        f"never seen; {sizes['train']} formulae and {sizes['steps']} steps of {sizes['batch']} in "
        "training; mean and 95 % interval over seeds.", "",
        "| the generator reads | satisfied |", "|---|---|",
        *(f"| {name} | {interval(shares[c])} |" for c, name in names.items()),
        f"| vector / nothing, per seed | {interval(facts['ratios'])} |", "",
    ])  # fmt: skip


main()
