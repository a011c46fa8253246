"""Fine-tune the encoder on a target of one's own: how likely a formula is to hold on a given process.

    python examples/finetune.py            # small, to see it work: writes finetune.json
    python examples/finetune.py --full     # some minutes

The process is an autoregressive one in two channels, which the encoder knows nothing about. A linear
layer on fixed vectors predicts the probability of each formula; then the last two blocks of the encoder
are trained along with it. Both are measured on formulae that were not trained on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import rhovec as rv


def process(n: int, points: int = 60, seed: int = 0) -> np.ndarray:
    """Traces (n, 2, points): each channel is drawn to the other's last value."""
    rng = np.random.default_rng(seed)
    out = np.empty((n, 2, points))
    out[:, :, 0] = rng.normal(size=(n, 2))
    for t in range(1, points):
        out[:, :, t] = 0.6 * out[:, ::-1, t - 1] + 0.5 * rng.normal(size=(n, 2))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    full = parser.parse_args().full
    count, probe_steps, steps, batch = (3000, 500, 300, 64) if full else (48, 20, 2, 8)
    torch.manual_seed(0)
    texts = rv.random_formulae(count, seed=1, n_variables=2)
    holds = rv.satisfaction(texts, process(2000)).mean(axis=1)
    target = torch.tensor(holds, dtype=torch.float32)
    train, test = torch.arange(count * 3 // 4), torch.arange(count * 3 // 4, count)

    module = rv.load().module(kind="cosine").requires_grad_(False)
    with torch.no_grad():
        fixed = torch.cat([module(texts[i : i + 256]) for i in range(0, count, 256)])
    layer = nn.Linear(module.dimension, 1)

    def predicted(vectors: Tensor) -> Tensor:
        return torch.sigmoid(layer(vectors * module.dimension**0.5)[:, 0])

    def error(vectors: Tensor, chosen: Tensor) -> float:
        with torch.no_grad():
            return float((predicted(vectors) - target[chosen]).abs().mean())

    optimiser = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(probe_steps):
        loss = (predicted(fixed[train]) - target[train]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    before = error(fixed[test], test)

    last = [p for block in module.encoder.blocks[-2:] for p in block.parameters()]
    for parameter in last:
        parameter.requires_grad_(True)
    optimiser = torch.optim.AdamW([*last, *layer.parameters()], lr=3e-4)
    order = np.random.default_rng(0)
    for _ in range(steps):
        chosen = torch.from_numpy(order.choice(len(train), batch, replace=False))
        vectors = module([texts[i] for i in chosen.tolist()])
        loss = (predicted(vectors) - target[chosen]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        tuned = torch.cat([module([texts[i] for i in part.tolist()]) for part in test.split(256)])
    after = error(tuned, test)
    facts = {"formulae": count, "fixed vectors": before, "fine-tuned": after}
    Path("finetune.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"mean error of the probability: {before:.4f} on fixed vectors, {after:.4f} fine-tuned")


main()
