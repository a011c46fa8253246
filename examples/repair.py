"""Learn a limit from recorded drives, then repair a planned path that breaks the requirements.

    python examples/repair.py [repair.png]

Robustness has gradients to the thresholds (what is the tightest speed limit that all drives keep?)
and to the signals (how must a path move to reach its goal, round the obstacle, within that limit?).
The path follows the smooth robustness, which feels every sample, until the requirement holds, and
then the exact one until it holds with a margin.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle

import rhovec as rv

OBSTACLE, GOAL, POINTS = (1.5, 3.5, 1.0, 3.0), (4.2, 5.2, 4.0, 5.0), 51  # boxes: x, x, y, y


def tightest_limit(drives: dict[str, torch.Tensor]) -> float:
    """The smallest c such that |vx| <= c and |vy| <= c on all drives (N, P), by Newton's method."""
    phi = rv.parse("always (abs(vx) <= 1 and abs(vy) <= 1)")
    unit = torch.tensor([row[4] for row in phi.rows() if row[3] is not None])  # each +1 or -1
    c = torch.tensor(0.0, requires_grad=True)
    while (worst := rv.robustness(phi, drives, thresholds=c * unit).min()).abs() > 1e-6:
        (slope,) = torch.autograd.grad(worst, c)
        c = (c - worst / slope).detach().requires_grad_()
    return c.item()


def repair(phi: rv.Formula, planned: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
    """A velocity (2, P) near the planned one that satisfies phi; and the robustness on the way."""
    velocity = planned.clone().requires_grad_()
    optimiser = torch.optim.Adam([velocity], lr=0.002)
    history: list[float] = []
    for _ in range(1000):
        (vx, vy), (x, y) = velocity[:, None], velocity.cumsum(1)[:, None]
        path = {"x": x, "y": y, "vx": vx, "vy": vy}
        exact = rv.robustness(phi, path)
        history.append(exact.item())
        if history[-1] > 0.02:
            break
        value = rv.robustness(phi, path, temperature=0.02) if history[-1] < 0 else exact
        optimiser.zero_grad()
        (-value).sum().backward()
        optimiser.step()
    return velocity.detach(), history


def inside(box: tuple[float, ...]) -> str:
    return f"({box[0]} <= x <= {box[1]} and {box[2]} <= y <= {box[3]})"


def main() -> None:
    torch.manual_seed(0)
    drives = 0.07 + 0.02 * torch.randn(100, 2, POINTS)
    limit = tightest_limit({"vx": drives[:, 0], "vy": drives[:, 1]})
    print(f"tightest speed limit that {len(drives)} drives keep: {limit:.4f}")

    phi = rv.parse(
        f"always (abs(vx) <= {limit} and abs(vy) <= {limit}) and always not {inside(OBSTACLE)}"
        f" and eventually[30,45] always[0,5] {inside(GOAL)}"
    )
    planned = torch.full((2, POINTS), 0.07)
    repaired, history = repair(phi, planned)
    print(f"robustness {history[0]:.3f} -> {history[-1]:.3f} in {len(history) - 1} steps")

    figure, (plane, speed, curve) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    for box, name, colour in ((OBSTACLE, "obstacle", "tab:red"), (GOAL, "goal", "tab:green")):
        size = box[1] - box[0], box[3] - box[2]
        plane.add_patch(Rectangle((box[0], box[2]), *size, color=colour, alpha=0.3, label=name))
    plane.plot(*planned.cumsum(1), ".--", color="grey", label="planned")
    plane.plot(*repaired.cumsum(1), ".-", color="tab:blue", label="repaired")
    plane.set(xlabel="x", ylabel="y", title="path", aspect="equal")
    plane.legend(loc="upper left")
    speed.plot(planned[0], "--", color="grey", label="vx = vy, planned")
    for values, name in zip(repaired, ("vx", "vy"), strict=True):
        speed.plot(values, label=f"{name}, repaired")
    speed.axhline(limit, color="tab:red", label="limit learned from drives")
    speed.set(xlabel="time", ylim=(0, None), title="speed")
    speed.legend(loc="lower left")
    curve.plot(history)
    curve.axhline(0, color="grey", linewidth=0.8)
    curve.set(xlabel="step of the repair", title="robustness: satisfied above zero")
    path = sys.argv[1] if len(sys.argv) > 1 else "repair.png"
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
