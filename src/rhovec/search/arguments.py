"""Arguments of an index, checked: each function gives the value, or an error that names the argument."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from ..errors import RhovecError


def file_path(path: Any) -> Path:
    try:
        if (name := os.fspath(path)) and "\0" not in name:
            return Path(path)
    except TypeError:
        pass
    raise RhovecError(f"path must be the name of a file, not {path!r}")


def names_of(names: Any, argument: str) -> frozenset[str]:
    return frozenset(texts_of(names, argument))


def texts_of(names: Any, argument: str) -> list[str]:
    listed = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
    for name in listed:
        if not isinstance(name, str):
            raise RhovecError(f"{argument} must be text, not {name!r}")
    return listed


def tags_of_each(tags: Any) -> Iterator[list[str]]:
    listed = [tags] if isinstance(tags, str) or not isinstance(tags, Iterable) else list(tags)
    if any(isinstance(tag, Iterable) and not isinstance(tag, str) for tag in listed):
        return (tags_of(each) for each in listed)
    return repeat(tags_of(listed))


def tags_of(tags: Any) -> list[str]:
    listed = texts_of(tags, "tags")
    for tag in listed:
        if not tag.strip() or not tag.isprintable():
            raise RhovecError(f"tags must be printable text, not {tag!r}")
    return listed


def identifiers_of(requirements: Any) -> Iterator[str | None]:
    if requirements is None:
        return repeat(None)
    listed = requirements
    if isinstance(requirements, str) or not isinstance(requirements, Iterable):
        listed = [requirements]
    return map(identifier_of, listed)


def identifier_of(requirement: Any) -> str | None:
    if requirement is None:
        return None
    if not isinstance(requirement, str) or not requirement.strip() or not requirement.isprintable():
        raise RhovecError(
            f"requirements must be identifiers such as REQ-12, or None, not {requirement!r}"
        )
    return requirement
