"""How the capture runs its code around a function of torch while a window is open, without any effect on the program.

A patch replaces a function when the window opens, and the original is restored when it closes.

* The program may patch the same name meanwhile. So a replacement is removed only while it is still in place. One that a
  later patch still calls passes each call on to the original.
* If the code of a replacement fails, the program gets the original's result or exception, and the replacement is not
  used again. The user is warned with a `CaptureWarning`; nothing here stops the training loop.
* The tracebacks of the program's exceptions lack the frames of the capture. Python adds a frame to a traceback once, as
  the exception reaches the frame; a bare `raise` does not add it again. So a function that catches an exception removes
  its own frame from the traceback and raises with a bare `raise`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from tracekit.capture.hooks.torch_compile import trace_check
from tracekit.model.texts import safe_text

_failures: list[str] = []


_applied: dict[Patch | ListedHook, None] = {}  # in the order in which they were applied


class Patch:
    """`owner.name` becomes `around(original, *args, **kwargs)` between `apply()` and `remove()`.

    `lasting`: it is not one recording's, so `remove_patches()` leaves it.
    """

    def __init__(self, owner: Any, name: str, around: Callable[..., Any], *, lasting: bool = False) -> None:
        self._owner = owner
        self._name = name
        self._around = around
        self._original: Any = None  # as the owner held it: a function, a static method ...
        self._inherited = False
        self._replacement: Any = None
        self._hook = _Hook(around)
        self.lasting = lasting

    @property
    def is_active(self) -> bool:
        """Whether calls of the replacement reach `around`."""
        return self._replacement is not None and self._hook.working

    def apply(self) -> None:
        self._inherited = hasattr(self._owner, "__dict__") and self._name not in vars(self._owner)
        self._original = self._current()
        wrapper = type(self._original) if isinstance(self._original, staticmethod | classmethod) else None
        original = self._original if wrapper is None else self._original.__func__
        self._hook = _Hook(self._around)
        replacement = functools.wraps(original)(_hooked(original, self._hook))
        self._replacement = replacement if wrapper is None else wrapper(replacement)
        _applied[self] = None
        setattr(self._owner, self._name, self._replacement)

    def remove(self) -> None:
        self._hook.working = False
        if self._replacement is not None and self._current() is self._replacement:
            if self._inherited:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self._original)
        self._original = self._replacement = None
        _applied.pop(self, None)

    def _current(self) -> Any:
        attributes = vars(self._owner) if hasattr(self._owner, "__dict__") else {}
        return attributes[self._name] if self._name in attributes else getattr(self._owner, self._name)


def patch_of(module: str, owner: str | None, name: str, around: Callable[..., Any]) -> list[Patch]:
    """Return the patch of `module.owner.name`; none if training has not imported the module, or its version lacks it.

    A method is replaced in the class that defines it.
    """
    holder = sys.modules.get(module)
    if owner is not None:
        holder = getattr(holder, owner, None)
    return [Patch(holder, name, around)] if holder is not None and name in vars(holder) else []


class ListedHook:
    """`hook` is in the program's list `hooks`, such as `gc.callbacks`, between `apply()` and `remove()`."""

    lasting = False

    def __init__(self, hooks: list[Any], hook: Callable[..., None]) -> None:
        self._hooks = hooks
        self._hook = hook

    def apply(self) -> None:
        _applied[self] = None
        self._hooks.append(self._hook)

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)
        _applied.pop(self, None)


class PatchSet:
    """What one observer patches while a window is open."""

    def __init__(self) -> None:
        self._patches: list[Patch | ListedHook] = []

    def apply(self, patches: Iterable[Patch | ListedHook]) -> None:
        for patch in patches:
            self._patches.append(patch)
            patch.apply()

    def remove(self) -> None:
        """Remove all, the last first. Then it is empty, and may be applied again."""
        while self._patches:
            self._patches.pop().remove()


class _Hook:
    """What is called around a function, as long as it works and is wanted."""

    __slots__ = ("around", "working")

    def __init__(self, around: Callable[..., Any]) -> None:
        self.around = around
        self.working = True


class _Call:
    """The original function as a replacement calls it; remembers how the call ended."""

    __slots__ = ("__wrapped__", "caught", "result", "returned")

    def __init__(self, original: Callable[..., Any]) -> None:
        self.__wrapped__ = original
        self.caught: CaughtError | None = None
        self.result: Any = None
        self.returned = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self.result = self.__wrapped__(*args, **kwargs)
        except BaseException:
            self.caught = CaughtError()
            raise
        self.returned = True
        return self.result

    def result_without_hook(self, *args: Any, **kwargs: Any) -> Any:
        """Return or raise what the program would have got without the hook, which has failed."""
        if self.caught is not None:
            raise self.caught.error
        return self.result if self.returned else self(*args, **kwargs)

    def forget_error(self) -> None:
        """Forget the exception. Its traceback leads to frames that hold this call, and to the program's tensors."""
        self.caught = None


def wrap_call(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function to pass to torch in place of `original`, which calls `around(original, *args, **kwargs)`.

    As with a `Patch`, a failure of `around` never reaches the program.
    """
    return _hooked(original, _Hook(around))


def _hooked(original: Callable[..., Any], hook: _Hook) -> Callable[..., Any]:
    """Return a function that calls the hook around `original`, or `original` alone once the hook does not work.

    What `original` raises leaves it with the traceback and the context that it would have without the hook.
    """
    traced = trace_check()

    def hooked(*args: Any, **kwargs: Any) -> Any:
        if traced():
            return original(*args, **kwargs)
        call = _Call(original)
        try:
            if hook.working:
                try:
                    return hook.around(call, *args, **kwargs)
                except Exception as error:
                    if call.caught is not None and error is call.caught.error:
                        raise
                    hook.working = False
                    _note_failure(hook.around, error)
                return call.result_without_hook(*args, **kwargs)
            return call(*args, **kwargs)
        except BaseException as error:
            if call.caught is not None and error is call.caught.error:
                call.caught.restore()
            raise
        finally:
            call.forget_error()

    return hooked


def fail_safe(hook: Callable[..., None]) -> Callable[..., None]:
    """Return `hook` for torch to call: an error in it is noted, and from then on it does nothing."""
    working = True
    traced = trace_check()

    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> None:
        nonlocal working
        if working and not traced():
            try:
                hook(*args, **kwargs)
            except Exception as error:
                working = False
                _note_failure(hook, error)

    return guarded


def remove_patches() -> None:
    """Remove all patches of recordings, whether or not their owner did; called as a recording ends.

    Of several patches of one name the last is removed first: a patch can be removed only while it is in place.
    """
    for patch in [patch for patch in reversed(_applied) if not patch.lasting]:
        with contextlib.suppress(Exception):
            patch.remove()


def take_failures() -> list[str]:
    """Return what failed in replacements and hooks since the last call of this, one line for each."""
    failures = list(_failures)
    _failures.clear()
    return failures


def _note_failure(function: Callable[..., Any], error: Exception) -> None:
    with contextlib.suppress(Exception):
        while isinstance(function, functools.partial):
            function = function.func
        name = getattr(function, "__qualname__", "a replacement")
        _failures.append(f"{name} failed: {type(error).__name__}: {error}")


class CaptureWarning(UserWarning):
    """Something about a recording that the user should know; training is not affected."""


def warn(text: str) -> None:
    """Issue `text` as a `CaptureWarning`, or on stderr where warnings are errors. It cannot control a terminal."""
    text = safe_text(text)
    try:
        # Without a line of code: most warnings come after the loop, and none is about the line that runs then.
        warnings.warn_explicit(text, CaptureWarning, filename="tracekit", lineno=0)
    except CaptureWarning:
        sys.stderr.write(f"tracekit: {text}\n")


def hide_this_frame() -> None:
    """Remove the caller's frame from the traceback of the exception that it handles; a bare `raise` has to follow."""
    _, error, trace = sys.exc_info()
    if error is not None and trace is not None:
        _set_traceback(error, trace.tb_next)


class CaughtError:
    """An exception as it left a function of the program, from the handler that catches it.

    The frames between that handler and another one, and what is raised between them, can be undone by `restore()`.
    """

    __slots__ = ("context", "error", "trace")

    def __init__(self) -> None:
        _, error, trace = sys.exc_info()
        assert error is not None
        self.error = error
        self.trace = None if trace is None else trace.tb_next
        self.context = error.__context__

    def restore(self) -> None:
        """Give the exception the traceback and the context back that it had; a bare `raise` has to follow."""
        _set_traceback(self.error, self.trace)
        if self.error.__context__ is not self.context:
            object.__setattr__(self.error, "__context__", self.context)


def _set_traceback(error: BaseException, trace: TracebackType | None) -> None:
    """Set a traceback, also of an exception whose class forbids to set attributes, such as a frozen dataclass."""
    BaseException.with_traceback(error, trace)
