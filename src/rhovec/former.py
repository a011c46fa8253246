"""Names of the first release, which still work and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Call = TypeVar("Call", bound=Callable[..., Any])


def warn(old: str, new: str, level: int = 3) -> None:
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=level)


def former_arguments(**names: str) -> Callable[[Call], Call]:
    """Let a function, or a class' constructor, take these keyword arguments under their old names."""

    def renamed(call: Any) -> Any:
        if isinstance(call, type):
            call.__init__ = renamed(call.__init__)  # type: ignore[misc]
            return call

        @wraps(call)
        def checked(*arguments: Any, **options: Any) -> Any:
            for old, new in names.items():
                if old in options:
                    if new in options:
                        raise TypeError(f"{old} is now called {new}; give only {new}")
                    warn(old, new)
                    options[new] = options.pop(old)
            return call(*arguments, **options)

        return checked

    return renamed
