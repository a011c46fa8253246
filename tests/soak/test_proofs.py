"""The prover on far more random pairs than `make test` gives it."""

from __future__ import annotations

import pytest

from ..test_compare import (
    check_that_nothing_false_is_proved,
    check_that_weaker_formulae_are_implied,
)

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("seed", range(1, 11))
def test_nothing_false_is_proved(seed: int) -> None:
    check_that_nothing_false_is_proved(seed)


def test_weaker_formulae_are_proved_to_be_implied() -> None:
    check_that_weaker_formulae_are_implied(4000, seed=1)
