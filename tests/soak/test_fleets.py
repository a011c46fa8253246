"""`make soak`: workers, schedulers and clients killed twenty times each; results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import fleets

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(
    "attack", [fleets.kill_workers, fleets.kill_schedulers, fleets.kill_clients]
)
def test_twenty_kills(attack: Callable[[fleets.Runs, int, int], Any], tmp_path: Path) -> None:
    print(attack(fleets.Runs(tmp_path), 20, 0))
