"""Replacing a function for the length of a recording, and putting it back.

The rest of the program may patch the same name meanwhile: a replacement is only taken back while it is still in place,
and one that stays behind in somebody's chain falls through to the original. What a replacement of ours gets wrong the
program never feels: the original's result or exception stands, and the replacement is out of use from then on.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from tracekit.capture.hooks.compiling import being_traced

_applied: dict[Patch, None] = {}  # in the order in which they were applied
_troubles: list[str] = []

__all__ = ["Patch", "harmless", "release_patches", "surround", "troubles"]


class Patch:
    """`owner.name` becomes `around(original, *args, **kwargs)` between `apply()` and `remove()`.

    `lasting`: it is not one recording's, so `release_patches()` leaves it.
    """

    def __init__(self, owner: Any, name: str, around: Callable[..., Any], *, lasting: bool = False) -> None:
        self._owner = owner
        self._name = name
        self._around = around
        self._original: Any = None  # as it stood in the owner: a function, a static method ...
        self._inherited = False
        self._replacement: Any = None
        self._active = False
        self.lasting = lasting

    def apply(self) -> None:
        self._inherited = hasattr(self._owner, "__dict__") and self._name not in vars(self._owner)
        self._original = self._in_place()
        wrapper = type(self._original) if isinstance(self._original, staticmethod | classmethod) else None
        original = self._original if wrapper is None else self._original.__func__

        traced = being_traced()

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if traced() or not self._active:
                return original(*args, **kwargs)
            called = _Call(original)
            try:
                return self._around(called, *args, **kwargs)
            except Exception as error:
                if error is called.error:
                    raise
                self._active = False
                _note(self._around, error)
                return called.settle(*args, **kwargs)

        self._replacement = replacement if wrapper is None else wrapper(replacement)
        self._active = True
        _applied[self] = None
        setattr(self._owner, self._name, self._replacement)

    def remove(self) -> None:
        self._active = False
        if self._replacement is not None and self._in_place() is self._replacement:
            if self._inherited:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self._original)
        self._original = self._replacement = None
        _applied.pop(self, None)

    def _in_place(self) -> Any:
        own = vars(self._owner) if hasattr(self._owner, "__dict__") else {}
        return own[self._name] if self._name in own else getattr(self._owner, self._name)


class _Call:
    """The original in the hands of a replacement, which remembers how a call of it ended."""

    __slots__ = ("__wrapped__", "error", "result", "returned")

    def __init__(self, original: Callable[..., Any]) -> None:
        self.__wrapped__ = original
        self.error: BaseException | None = None
        self.result: Any = None
        self.returned = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self.result = self.__wrapped__(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        self.returned = True
        return self.result

    def settle(self, *args: Any, **kwargs: Any) -> Any:
        """What the program would have got without the replacement, which has failed."""
        if self.error is not None:
            raise self.error from None
        return self.result if self.returned else self.__wrapped__(*args, **kwargs)


def surround(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    """A function to hand to torch in place of `original`: `around(original, *args, **kwargs)`, with the promise of a
    `Patch`."""
    working = True
    traced = being_traced()

    def surrounded(*args: Any, **kwargs: Any) -> Any:
        nonlocal working
        if traced() or not working:
            return original(*args, **kwargs)
        called = _Call(original)
        try:
            return around(called, *args, **kwargs)
        except Exception as error:
            if error is called.error:
                raise
            working = False
            _note(around, error)
            return called.settle(*args, **kwargs)

    return surrounded


def harmless(hook: Callable[..., None]) -> Callable[..., None]:
    """`hook`, for torch to call: what it raises is noted, and it does nothing from then on."""
    working = True
    traced = being_traced()

    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> None:
        nonlocal working
        if working and not traced():
            try:
                hook(*args, **kwargs)
            except Exception as error:
                working = False
                _note(hook, error)

    return guarded


def release_patches() -> None:
    """Remove every patch that is still there, whatever became of its owner; a recording ends with this. Of several
    on one name the last goes first: one that is not in place any more cannot be taken back."""
    for patch in [patch for patch in reversed(_applied) if not patch.lasting]:
        with contextlib.suppress(Exception):
            patch.remove()


def troubles() -> list[str]:
    """What went wrong in replacements and hooks since the last call, a line each."""
    found = list(_troubles)
    _troubles.clear()
    return found


def _note(function: Callable[..., Any], error: Exception) -> None:
    with contextlib.suppress(Exception):
        while isinstance(function, functools.partial):
            function = function.func
        name = getattr(function, "__qualname__", "a replacement")
        _troubles.append(f"{name} failed: {type(error).__name__}: {error}")
