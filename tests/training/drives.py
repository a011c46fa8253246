"""Made-up drives of a car, for tests of training on traces of one's own."""

import numpy as np

NAMES = ("speed", "rpm")


def drives(n: int, seed: int = 0, points: int = 25) -> np.ndarray:
    rng = np.random.default_rng(seed)
    speed = 30 + 10 * np.cumsum(rng.normal(size=(n, points)), axis=1)
    return np.stack([speed, 900 + 40 * speed + rng.normal(0, 200, (n, points))], axis=1)
