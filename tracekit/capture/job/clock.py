"""Measures this host's clock against that of rank 0, through the job's key-value store. It uses no collective.

Processes of a host share CLOCK_REALTIME, so one process of each host measures for all: the first to register, called
the leader (`clock_leader.py`). The others read what their leader has published. All this happens on other threads than
the one that trains: `register` and `measure` only ask for it, and `result` is called when the trace is written.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tracekit.capture.job.clock_leader import ClockKeys, ClockLeader
from tracekit.capture.job.process import Identity
from tracekit.capture.job.run_agreement import BoundedStore
from tracekit.model.metadata import ClockMeasurement, ClockSample
from tracekit.model.metadata.json_text import decode

REFERENCE_RANK = 0
FIRST_PAUSE_S, LAST_PAUSE_S = 0.005, 0.1


class HostClock:
    """The clock of this host, for one probe.

    Args:
        store: None without a job.
        number: which probe of the process this is.
    """

    def __init__(
        self,
        store: BoundedStore | None,
        identity: Identity,
        number: int = 0,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._identity = identity
        self._now_ns = now_ns
        self._number = number
        self._keys = ClockKeys(identity.attempt, number)
        self._leader: ClockLeader | None = None
        self._registered: Future[None] | None = None
        self._waiting: list[int] = []  # sessions that were asked for before the registration
        self._sessions = 0
        self._read = 0  # sessions whose samples were returned
        self._spent_ns = 0

    @property
    def spent_ns(self) -> int:
        """How long the calling threads were held up."""
        return self._spent_ns

    @property
    def is_leader(self) -> bool:
        """Whether this process measures for its host."""
        return self._leader is not None

    def register(self, attempt: int | None = None) -> None:
        """Have the store told which host this rank is on. `attempt`: of the job, if that is not the identity's."""
        begin_ns = time.monotonic_ns()
        if attempt is not None:
            self._keys = ClockKeys(attempt, self._number)
        if self._store is not None and self._registered is None:
            self._registered = self._store.post(self._register)
            waiting, self._waiting = self._waiting, []
            for session in waiting:
                self._post(session)
        self._spent_ns += time.monotonic_ns() - begin_ns

    def measure(self) -> None:
        """Have the clock measured now."""
        begin_ns = time.monotonic_ns()
        session, self._sessions = self._sessions, self._sessions + 1
        if self._registered is None:
            self._waiting.append(session)
        else:
            self._post(session)
        self._spent_ns += time.monotonic_ns() - begin_ns

    def result(self, limit_s: float) -> ClockMeasurement:
        """Return the samples that were asked for since the last call, as far as they come within `limit_s`.

        `method` is "none" without samples.
        """
        deadline = time.monotonic() + limit_s
        samples = []
        first, self._read = self._read, self._sessions
        for session in range(first, self._sessions):
            with contextlib.suppress(Exception):  # the leader has no answer yet, or the store is gone
                samples.append(self._sample(session, deadline))
        reference = REFERENCE_RANK if samples else None
        return ClockMeasurement(reference_rank=reference, method="store" if samples else "none", samples=samples)

    def linger(self) -> None:
        """Measure no more, but answer other hosts for a while."""
        if self._leader is not None:
            self._leader.linger()

    def close(self) -> None:
        """End the threads of a leader; may be called again."""
        if self._leader is not None:
            self._leader.close()

    def _post(self, session: int) -> None:
        if self._store is not None:
            self._store.post(lambda _: self._measure(session))

    def _register(self, store: Any) -> None:
        keys, identity = self._keys, self._identity
        if identity.rank == REFERENCE_RANK:
            store.set(keys.root_host, identity.host_id)
        if store.add(keys.registered(identity.host_id), 1) == 1:
            index = store.add(keys.hosts, 1) - 1
            self._leader = ClockLeader(store, keys, identity, index, self._now_ns)

    def _measure(self, session: int) -> None:
        if self._leader is not None:
            self._leader.measure(session)

    def _sample(self, session: int, deadline: float) -> ClockSample:
        assert self._store is not None
        key = self._keys.sample(self._identity.host_id, session)
        pause_s = FIRST_PAUSE_S
        while True:
            answer = self._store.ask(
                lambda store: store.get(key) if store.check([key]) else None, max(deadline - time.monotonic(), 0.05)
            )
            if answer is not None:
                return decode(answer, ClockSample)
            if time.monotonic() >= deadline:
                raise TimeoutError("the clock is not known yet")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
