"""Replacing a function for the length of a recording, and putting it back.

The rest of the program may patch the same name meanwhile: a replacement is only taken back while it is still in place,
and one that stays behind in somebody's chain falls through to the original.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["Patch"]


class Patch:
    """`owner.name` becomes `around(original, *args, **kwargs)` between `apply()` and `remove()`."""

    def __init__(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        self._owner = owner
        self._name = name
        self._around = around
        self._original: Any = None
        self._replacement: Any = None
        self._active = False

    def apply(self) -> None:
        original = getattr(self._owner, self._name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return original(*args, **kwargs)
            return self._around(original, *args, **kwargs)

        self._original, self._replacement, self._active = original, replacement, True
        setattr(self._owner, self._name, replacement)

    def remove(self) -> None:
        self._active = False
        if self._replacement is not None and getattr(self._owner, self._name) is self._replacement:
            setattr(self._owner, self._name, self._original)
        self._original = self._replacement = None
