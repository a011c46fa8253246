"""A space of the small car, in memory and in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import rhovec as rv

from .plant import NAMES, OPTIONS, drives


@pytest.fixture(scope="session")
def space() -> rv.Space:
    return rv.Space.fit(drives(), NAMES, **OPTIONS)


@pytest.fixture
def folder(space: rv.Space, tmp_path: Path) -> Path:
    space.save(tmp_path / "car")
    return tmp_path / "car"
