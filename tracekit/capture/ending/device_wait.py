"""Waits for the work that is queued on the device, and gives up where that hangs.

torch's profiler synchronises the device as it stops, without a limit. After an error the queue may hold a collective
whose peers never come: the process would stay until the watchdog of NCCL ends it. So at the end of a program another
thread synchronises first, and if it does not return, the profiler is stopped without.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

__all__ = ["DeviceWait"]


class DeviceWait:
    """A thread that is ready to synchronise `device`, torch's module of it. It is started now, as no thread can be
    started when the process exits. Raises RuntimeError if there are too many threads.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._index: int | None = None
        self._asked = threading.Event()
        self._done = threading.Event()
        self._cancelled = False
        threading.Thread(target=self._run, name="tracekit-device", daemon=True).start()

    def returns_within(self, limit_s: float) -> bool:
        """Return whether the work that this thread has queued on its current device ends within `limit_s`."""
        with contextlib.suppress(Exception):  # a device without numbers
            self._index = int(self._device.current_device())
        self._asked.set()
        return self._done.wait(limit_s)

    def cancel(self) -> None:
        """Let the thread end; may be called again."""
        self._cancelled = True
        self._asked.set()

    def _run(self) -> None:
        self._asked.wait()
        if not self._cancelled:
            with contextlib.suppress(Exception):  # torch's own stop meets the same error, and says it
                if self._index is None:
                    self._device.synchronize()
                else:
                    self._device.synchronize(self._index)  # each thread has a current device of its own
        self._done.set()
