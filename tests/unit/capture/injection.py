"""Makes any call that `tracekit.capture` makes fail, in a program that has no idea of it.

Python's profiling hook sees every call before it happens, of Python functions and of C ones, and what the hook raises
the caller gets as if the function had raised it. So the calls need no list: a run of the program names them all.
What is guarded apart from each other may fail in one run, so that a sweep over all calls needs fewer of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import tracekit.capture

CAPTURE = str(Path(tracekit.capture.__file__).parent)

GUARD = "Recording._guarded"
# The program's own way through the probe: what it calls itself, or has torch call. Their bodies are tested by the
# calls they make; the call of them is not the probe's.
SHELL = {
    "Patch.apply.<locals>.replacement",
    "Probe._cancel",
    "Probe._enter",
    "Probe._enter_event",
    "Probe._guarded",
    "Probe._leave",
    "Probe._stop_listening",
    "Probe.finish",
    "Probe.iterate",
    "SigtermHandler.deliver_deferred",
    "SigtermHandler.remove",  # an undoing that fails leaves a handler that does nothing
    "_Call.__call__",
    "_Call.__init__",
    "_Call.result_without_hook",
    "fail_safe.<locals>.guarded",
    "wrap_call.<locals>.wrapped",
    "wrap_function.<locals>.recorded",
}
# What Python calls wherever an object happens to die; what it raises, nobody gets.
CALLBACKS = {"WeakSet.__init__.<locals>._remove", "WeakKeyDictionary.__init__.<locals>.remove"}
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


class Failure(NamedTuple):
    """What the `occurrence`-th call of a site, from 1, raises."""

    occurrence: int
    error: Exception


_known: dict[tuple[int, int], tuple[Site | None, CodeType, CodeType]] = {}  # with the codes, so that ids stay theirs
_own: dict[int, tuple[bool, CodeType]] = {}


def _site(frame: FrameType, event: str, argument: Any) -> Site | None:
    """The call that is about to happen, if it is one of the capture's."""
    code = frame.f_code
    if event == "call":
        caller = frame.f_back
        if caller is None:
            return None
        known = _known.get((id(code), id(caller.f_code)))
        if known is None:
            known = _known[id(code), id(caller.f_code)] = _site_of(code, caller.f_code), code, caller.f_code
        return known[0]
    if event != "c_call":
        return None
    own = _own.get(id(code))
    if own is None:
        own = _own[id(code)] = code.co_filename.startswith(CAPTURE) and code.co_qualname not in SHELL, code
    if not own[0]:
        return None
    if isinstance(getattr(argument, "__self__", None), (*PRIMITIVES, RLOCK)) or argument in PRIMITIVE_FUNCTIONS:
        return None
    return Site(Path(code.co_filename).stem, code.co_qualname, getattr(argument, "__qualname__", repr(argument)))


def _site_of(code: CodeType, caller: CodeType) -> Site | None:
    """The call of a Python function by another, if it is one of the capture's."""
    if "<" in code.co_name or code.co_qualname in CALLBACKS or MACHINERY & {code.co_filename, caller.co_filename}:
        return None
    own, by_capture = code.co_filename.startswith(CAPTURE), caller.co_filename.startswith(CAPTURE)
    called_from = caller.co_qualname
    if own and by_capture:  # fails by what it calls itself; whole only where there is a guard for it
        return Site("recording", called_from, code.co_qualname) if called_from == GUARD else None
    if by_capture and called_from not in SHELL:
        return Site(Path(caller.co_filename).stem, called_from, code.co_qualname)
    if own and code.co_qualname not in SHELL:  # a hook or a replacement, called by torch or the program
        return Site(Path(code.co_filename).stem, "", code.co_qualname)
    return None


def calls_of(program: Callable[[], object]) -> dict[Site, int]:
    """What the capture calls while `program` runs on this thread, with how often."""
    found: Counter[Site] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if (site := _site(frame, event, argument)) is not None:
            found[site] += 1

    _with_hook(count, program)
    return dict(found)


def run_with_failures(program: Callable[[], Any], failures: Mapping[Site, Failure]) -> tuple[Any, set[Site]]:
    """What `program` returns when each of these calls fails, and which of them it came to make."""
    left = {site: failure.occurrence for site, failure in failures.items()}
    failed: set[Site] = set()

    def fail(frame: FrameType, event: str, argument: Any) -> None:
        site = _site(frame, event, argument)
        if site is None or site not in left:
            return
        left[site] -= 1
        if left[site] == 0:
            del left[site]
            failed.add(site)
            # Python drops a hook that raises; the next call of a function, in the guard at the latest, has it again.
            if left:
                sys.settrace(resume)
            sys.setprofile(None)
            raise failures[site].error

    def resume(*_: object) -> None:
        sys.settrace(None)
        sys.setprofile(fail)

    return _with_hook(fail, program), failed


def _with_hook(hook: Callable[[FrameType, str, Any], None], program: Callable[[], Any]) -> Any:
    sys.setprofile(hook)
    try:
        return program()
    finally:
        sys.settrace(None)
        sys.setprofile(None)
