"""Makes any call that `tracekit.capture` makes fail, in a program that has no idea of it.

Python's profiling hook sees every call before it happens, of Python functions and of C ones, and what the hook raises
the caller gets as if the function had raised it. So the calls need no list: a run of the program names them all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import tracekit.capture

CAPTURE = str(Path(tracekit.capture.__file__).parent)

GUARD = "Recording._guarded"
# The program's own way through the probe: what it calls itself, or has torch call. Their bodies are tested by the
# calls they make; the call of them is not the probe's.
SHELL = {
    "Patch.apply.<locals>.replacement",
    "Probe._around_function.<locals>.recorded",
    "Probe._cancel",
    "Probe._enter",
    "Probe._enter_event",
    "Probe._guarded",
    "Probe._leave",
    "Probe._stop_listening",
    "Probe.finish",
    "Probe.iterate",
    "Termination.deliver",
    "Termination.remove",  # an undoing that fails leaves a handler that does nothing
    "_Call.__call__",
    "_Call.__init__",
    "_Call.settle",
    "harmless.<locals>.guarded",
    "surround.<locals>.surrounded",
}
# What only fails if Python itself does.
PRIMITIVES = (str, bytes, dict, list, set, frozenset, tuple, int, type(None))
PRIMITIVE_FUNCTIONS = {id, len, isinstance, getattr, hasattr, min, max, any, all, sum, sorted, next, iter, vars}
PRIMITIVE_FUNCTIONS |= {threading.get_ident, threading.current_thread, threading.main_thread}
RLOCK = type(threading.RLock())
MACHINERY = {contextlib.__file__, dataclasses.__file__, functools.__file__, threading.__file__, "<string>"}


class Site(NamedTuple):
    """A call in `tracekit.capture`: from which function of which file, of what."""

    file: str
    caller: str
    callee: str


def _site(frame: FrameType, event: str, argument: Any) -> Site | None:
    """The call that is about to happen, if it is one of the capture's."""
    if event == "call":
        code, caller = frame.f_code, frame.f_back
        if caller is None or "<" in code.co_name or MACHINERY & {code.co_filename, caller.f_code.co_filename}:
            return None
        own, by_capture = code.co_filename.startswith(CAPTURE), caller.f_code.co_filename.startswith(CAPTURE)
        called_from = caller.f_code.co_qualname
        if own and by_capture:  # fails by what it calls itself; whole only where there is a guard for it
            return Site("recording", called_from, code.co_qualname) if called_from == GUARD else None
        if by_capture and called_from not in SHELL:
            return Site(Path(caller.f_code.co_filename).stem, called_from, code.co_qualname)
        if own and code.co_qualname not in SHELL:  # a hook or a replacement, called by torch or the program
            return Site(Path(code.co_filename).stem, "", code.co_qualname)
        return None
    if event != "c_call" or not frame.f_code.co_filename.startswith(CAPTURE) or frame.f_code.co_qualname in SHELL:
        return None
    if isinstance(getattr(argument, "__self__", None), (*PRIMITIVES, RLOCK)) or argument in PRIMITIVE_FUNCTIONS:
        return None
    code = frame.f_code
    return Site(Path(code.co_filename).stem, code.co_qualname, getattr(argument, "__qualname__", repr(argument)))


def calls_of(program: Callable[[], object]) -> dict[Site, int]:
    """What the capture calls while `program` runs on this thread, with how often."""
    found: Counter[Site] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if (site := _site(frame, event, argument)) is not None:
            found[site] += 1

    _with_hook(count, program)
    return dict(found)


def run_with_failure(program: Callable[[], Any], site: Site, occurrence: int, error: BaseException) -> Any:
    """What `program` returns when the `occurrence`-th call of `site`, from 1, raises `error`."""
    left = occurrence

    def fail(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        if _site(frame, event, argument) == site:
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise error

    return _with_hook(fail, program)


def _with_hook(hook: Callable[[FrameType, str, Any], None], program: Callable[[], Any]) -> Any:
    sys.setprofile(hook)
    try:
        return program()
    finally:
        sys.setprofile(None)
