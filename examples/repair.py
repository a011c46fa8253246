"""Tune a threshold on recorded drives, then repair a planned one until it keeps the requirement.

    python examples/repair.py [repair.png]

Robustness has gradients to the constants of a formula and to the traces.
"""

import sys

import matplotlib.pyplot as plt
import torch

import rhovec as rv

torch.manual_seed(0)
t = torch.arange(100.0)
drives = (60 + 40 * torch.rand(30, 1)) * (1 - torch.exp(-t / 20)) + torch.randn(30, 100)

# The tightest limit that all drives keep: the worst robustness becomes zero (Newton's method).
limit = torch.zeros(1, requires_grad=True)
while (
    worst := rv.robustness("always speed <= 0", {"speed": drives}, thresholds=limit).min()
).abs() > 1e-4:
    (slope,) = torch.autograd.grad(worst, limit)
    limit = (limit - worst / slope).detach().requires_grad_()

# A drive that breaks it: follow the smooth robustness, which feels every sample, until it holds.
phi = rv.parse(
    f"always speed <= {limit.item():.1f} and eventually[40,60] always[0,20] 70 <= speed <= 75"
)
planned = 120 * (1 - torch.exp(-t / 15))
speed = planned.clone().requires_grad_()
optimiser = torch.optim.Adam([speed], lr=0.5)
history = [rv.robustness(phi, {"speed": planned[None]}).item()]
while history[-1] < 0.1:
    optimiser.zero_grad()
    (-rv.robustness(phi, {"speed": speed[None]}, temperature=1.0)).sum().backward()
    optimiser.step()
    history.append(rv.robustness(phi, {"speed": speed.detach()[None]}).item())
print(
    f"limit {limit.item():.1f}; robustness {history[0]:.1f} -> {history[-1]:.2f} "
    f"in {len(history) - 1} steps"
)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(t, drives.T, color="lightgrey", linewidth=0.5)
left.plot(t, planned, "--", label="planned")
left.plot(t, speed.detach(), label="repaired")
left.axhline(limit.item(), color="tab:red", label="limit learned from the drives (grey)")
left.axhspan(70, 75, color="tab:green", alpha=0.3, label="to be held for 20 steps")
left.set(xlabel="time (steps)", ylabel="speed (km/h)", title="a drive, and the requirement")
left.legend(fontsize=8, loc="lower right")
right.plot(history)
right.axhline(0, color="grey", linewidth=0.8)
right.set(xlabel="step of the repair", ylabel="robustness (km/h)", title="satisfied above zero")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "repair.png", dpi=120)
