"""Lists all calls that `tracekit.capture` makes in a program, and makes chosen ones fail.

Python's profiling hook is called before each call of a Python or C function. If the hook raises, the caller gets the
error as if the function had raised it. So no list of calls is needed: a run of the program finds them all.
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
# Called by the program, or by torch on its behalf: only the calls that these functions make are tested.
SHELL = {
    "CaughtError.__init__",
    "CaughtError.restore",
    "Probe._cancel",
    "Probe._enter",
    "Probe._enter_event",
    "Probe._guarded",
    "Probe._leave",
    "Probe._stop_listening",
    "Probe.finish",
    "Probe.iterate",
    "SigtermHandler.deliver_deferred",
    "_CollectionSpans.__call__",  # Python prints what a callback of the garbage collector raises
    "SigtermHandler.remove",  # if it fails, a handler stays that does nothing
    # Calls of the socket and of the wake-up descriptor, which fail only if Python does.
    "_BlockedThreadWatch.end",
    "_Call.__call__",
    "_Call.__init__",
    "_Call.result_without_hook",
    "_Hook.__init__",
    "_hooked.<locals>.hooked",
    "_set_traceback",
    "fail_safe.<locals>.guarded",
    "hide_this_frame",
    "wrap_function.<locals>.recorded",
}
# What Python calls when an object is freed; its errors reach nobody.
CALLBACKS = {"WeakSet.__init__.<locals>._remove", "WeakKeyDictionary.__init__.<locals>.remove"}
# What fails only if Python itself fails.
PRIMITIVES = (str, bytes, dict, list, set, frozenset, tuple, int, type(None))
PRIMITIVE_FUNCTIONS = {id, len, isinstance, getattr, hasattr, min, max, any, all, sum, sorted, next, iter, vars}
PRIMITIVE_FUNCTIONS |= {threading.get_ident, threading.current_thread, threading.main_thread}
RLOCK = type(threading.RLock())
MACHINERY = {contextlib.__file__, dataclasses.__file__, functools.__file__, threading.__file__, "<string>"}


class Site(NamedTuple):
    """A call in `tracekit.capture`: the file and the calling function in it, and the called function."""

    file: str
    caller: str
    callee: str


class Failure(NamedTuple):
    """The `occurrence`-th call of a site, counted from 1, raises `error`."""

    occurrence: int
    error: Exception


# Both with the code objects, so that their ids stay valid.
_known_sites: dict[tuple[int, int], tuple[Site | None, CodeType, CodeType]] = {}
_is_capture_code: dict[int, tuple[bool, CodeType]] = {}


def _site(frame: FrameType, event: str, argument: Any) -> Site | None:
    """Return the call that is about to happen, if the capture makes it."""
    code = frame.f_code
    if event == "call":
        caller = frame.f_back
        if caller is None:
            return None
        known = _known_sites.get((id(code), id(caller.f_code)))
        if known is None:
            known = _known_sites[id(code), id(caller.f_code)] = _site_of(code, caller.f_code), code, caller.f_code
        return known[0]
    if event != "c_call":
        return None
    cached = _is_capture_code.get(id(code))
    if cached is None:
        cached = _is_capture_code[id(code)] = (
            code.co_filename.startswith(CAPTURE) and code.co_qualname not in SHELL,
            code,
        )
    if not cached[0]:
        return None
    if isinstance(getattr(argument, "__self__", None), (*PRIMITIVES, RLOCK)) or argument in PRIMITIVE_FUNCTIONS:
        return None
    return Site(Path(code.co_filename).stem, code.co_qualname, getattr(argument, "__qualname__", repr(argument)))


def _site_of(code: CodeType, caller: CodeType) -> Site | None:
    """Return the call of a Python function by another, if the capture makes it."""
    if "<" in code.co_name or code.co_qualname in CALLBACKS or MACHINERY & {code.co_filename, caller.co_filename}:
        return None
    of_capture, by_capture = code.co_filename.startswith(CAPTURE), caller.co_filename.startswith(CAPTURE)
    called_from = caller.co_qualname
    if of_capture and by_capture:  # the calls inside it fail; it fails as a whole only below a guard
        return Site("recording", called_from, code.co_qualname) if called_from == GUARD else None
    if by_capture and called_from not in SHELL:
        return Site(Path(caller.co_filename).stem, called_from, code.co_qualname)
    if (
        of_capture and code.co_qualname not in SHELL
    ):  # a hook or a replacement of the capture, called by torch or the program
        return Site(Path(code.co_filename).stem, "", code.co_qualname)
    return None


def calls_of(program: Callable[[], object]) -> dict[Site, int]:
    """Return the calls of the capture while `program` runs on this thread, with their number."""
    found: Counter[Site] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if (site := _site(frame, event, argument)) is not None:
            found[site] += 1

    _with_hook(count, program)
    return dict(found)


def run_with_failures(program: Callable[[], Any], failures: Mapping[Site, Failure]) -> tuple[Any, set[Site]]:
    """Return what `program` returns when each of these calls fails, and which of them were made."""
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
            # Python removes a hook that raises; the next call of a function, in the guard at the latest, sets it again.
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
