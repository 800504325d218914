"""One recording at a time in a process, whichever probe makes it: torch has one profiler, and a second one takes the
events of the first."""

from __future__ import annotations

import os
import threading
from typing import Protocol

__all__ = ["Turn", "claim_turn", "release_turn"]


class Turn(Protocol):
    """Whoever may hold the turn. `make_room()` ends a recording that is only provisional, and says whether it did."""

    def make_room(self) -> bool: ...


_lock = threading.RLock()  # reentrant: a signal handler may end a recording in the middle of a claim
_holder: Turn | None = None


def claim_turn(claimant: Turn, *, provisional: bool) -> bool:
    """Whether `claimant` may use the profiler, until it releases it. What is provisional gives way."""
    global _holder
    with _lock:
        free = _holder is None or _holder is claimant or (not provisional and _holder.make_room())
        if free:
            _holder = claimant
        return free


def release_turn(claimant: Turn) -> None:
    global _holder
    with _lock:
        if _holder is claimant:
            _holder = None


def _begin_anew() -> None:
    """In a forked child the turn is nobody's, and the lock, which a thread that is not there may hold, a new one."""
    global _lock, _holder
    _lock, _holder = threading.RLock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
