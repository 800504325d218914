"""Lets one probe of a process record at a time: torch has one profiler, and a second one takes the first's events."""

from __future__ import annotations

import os
import threading
from typing import Protocol

__all__ = ["ProfilerUser", "acquire_profiler", "release_profiler"]


class ProfilerUser(Protocol):
    """Who may use torch's profiler."""

    def release_provisional(self) -> bool:
        """End a recording that is only provisional; return whether it did."""


_lock = threading.RLock()  # reentrant: a signal handler may end a recording while this is held
_holder: ProfilerUser | None = None


def acquire_profiler(user: ProfilerUser, *, provisional: bool) -> bool:
    """Return whether `user` may use the profiler until it releases it.

    A provisional recording of another user ends, unless `user` itself wants a provisional one.
    """
    global _holder
    with _lock:
        free = _holder is None or _holder is user or (not provisional and _holder.release_provisional())
        if free:
            _holder = user
        return free


def release_profiler(user: ProfilerUser) -> None:
    global _holder
    with _lock:
        if _holder is user:
            _holder = None


def _reset_after_fork() -> None:
    """In a forked child: nobody uses the profiler, and the lock is new, as a thread of the parent may hold the old."""
    global _lock, _holder
    _lock, _holder = threading.RLock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
