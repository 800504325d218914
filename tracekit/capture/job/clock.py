"""Measures this host's clock against that of rank 0, through the job's key-value store. It uses no collective.

Processes of a host share CLOCK_REALTIME, so one process of each host measures for all: the first to register, called
the leader. Leaders form a tree of fan-out 16 with the host of rank 0 at the root. A child sends a ping through the
store, and its parent answers with its own time. Of many rounds the one with the shortest round trip counts: the offset
is the middle of the round trip minus the parent's time, and its error is at most half the round trip. Offsets and
errors add up along the tree.

Waiting and measuring take at most `BUDGET_S` in the life of a process. A measurement that does not fit is left out.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tracekit.capture.job.process import ANSWER_TIMEOUT_S, Identity
from tracekit.capture.job.store import BoundedStore
from tracekit.model.metadata import ClockMeasurement, ClockSample

BUDGET_S = 2.0
SESSION_S = 0.5
GRACE_S = 0.2
ROUNDS = 40
FAN_OUT = 16
REFERENCE_RANK = 0
PREFIX = "tracekit/clock"

__all__ = ["HostClock"]


class HostClock:
    """The clock of this host, for one probe.

    `register()` is called at the first call, `measure()` as a window opens and closes, `result()` as it is written.
    Keys in the store contain `Identity.attempt`, as a store can outlive ranks, and the number of the probe.
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
        self._prefix = f"{PREFIX}/{identity.attempt}/{number}"
        self._leader_index: int | None = None
        self._sessions = 0
        self._spent_s = 0.0
        self._samples: list[ClockSample] = []
        self._pending: list[tuple[int, str]] = []  # time, and the key for the result of this host's leader

    @property
    def spent_ns(self) -> int:
        return int(self._spent_s * 1e9)

    def register(self) -> None:
        """Tell the store which host this rank is on; takes three round trips and waits for no other rank."""
        if self._store is None:
            return
        begin = time.monotonic()
        try:
            self._store.ask(self._register, ANSWER_TIMEOUT_S)
        except Exception:  # errors depend on the kind of store; the offset is then unknown
            self._store = None
        self._spent_s += time.monotonic() - begin

    def measure(self) -> None:
        """Take part in one measurement; on a single host the offset is 0."""
        if self._store is None or self._spent_s >= BUDGET_S:
            return
        begin = time.monotonic()
        session, self._sessions = self._sessions, self._sessions + 1
        deadline = begin + min(SESSION_S, BUDGET_S - self._spent_s)
        with contextlib.suppress(Exception):  # a peer did not come in time: its offset stays unknown
            self._store.ask(lambda store: self._measure(store, session, deadline), _until(deadline))
        self._spent_s += time.monotonic() - begin

    def result(self) -> ClockMeasurement:
        """Return all samples since the last call. `method` is "none" without samples."""
        begin = time.monotonic()
        deadline = begin + max(0.0, min(SESSION_S, BUDGET_S - self._spent_s))
        for at_ns, key in self._pending:
            with contextlib.suppress(Exception):  # the leader of this host did not get an answer in time
                assert self._store is not None
                answer = self._store.ask(lambda store, key=key: _await(store, key, deadline), _until(deadline))  # type: ignore[misc]
                self._samples.append(ClockSample(at_ns=at_ns, **json.loads(answer)))
        samples, self._samples, self._pending = self._samples, [], []
        self._spent_s += time.monotonic() - begin
        reference = REFERENCE_RANK if samples else None
        return ClockMeasurement(reference_rank=reference, method="store" if samples else "none", samples=samples)

    def _register(self, store: Any) -> None:
        if self._identity.rank == REFERENCE_RANK:
            store.set(f"{self._prefix}/root", self._identity.host_id)
        if store.add(f"{self._prefix}/host/{self._identity.host_id}", 1) == 1:
            self._leader_index = store.add(f"{self._prefix}/hosts", 1)
        store.add(f"{self._prefix}/ranks", 1)

    def _measure(self, store: Any, session: int, deadline: float) -> None:
        host_id = self._identity.host_id
        if store.add(f"{self._prefix}/ranks", 0) < self._identity.world_size:
            return  # a rank has no probe, or has not registered yet: the tree is not complete
        hosts = store.add(f"{self._prefix}/hosts", 0)
        root_host = store.get(f"{self._prefix}/root").decode()
        at_root = host_id == root_host
        result_key = f"{self._prefix}/{session}/offset/{host_id}"
        if at_root:
            self._samples.append(ClockSample(at_ns=self._now_ns(), offset_ns=0, error_ns=0, rtt_ns=0))
        else:
            self._pending.append((self._now_ns(), result_key))
        if self._leader_index is None or hosts == 1:
            return
        place = self._place(store, hosts, root_host, deadline)
        offset_ns = error_ns = rtt_ns = 0
        if not at_root:
            parent = (place - 1) // FAN_OUT
            offset_ns, error_ns, rtt_ns = self._ping(store, session, place, deadline)
            upstream = json.loads(_await(store, f"{self._prefix}/{session}/place/{parent}", deadline))
            offset_ns += upstream["offset_ns"]
            error_ns += upstream["error_ns"]
        answer = json.dumps({"offset_ns": offset_ns, "error_ns": error_ns, "rtt_ns": rtt_ns})
        store.set(result_key, answer)
        store.set(f"{self._prefix}/{session}/place/{place}", answer)
        for child in range(place * FAN_OUT + 1, min(place * FAN_OUT + FAN_OUT, hosts - 1) + 1):
            self._answer(store, session, child, deadline)

    def _place(self, store: Any, hosts: int, root_host: str, deadline: float) -> int:
        """Return the position in the tree, from 0: the order of registration, but with rank 0's host first."""
        assert self._leader_index is not None
        index = self._leader_index - 1
        if self._identity.host_id == root_host:
            store.set(f"{self._prefix}/root_index", str(index))
            return 0
        root_index = int(_await(store, f"{self._prefix}/root_index", deadline))
        return root_index if index == 0 else index

    def _ping(self, store: Any, session: int, place: int, deadline: float) -> tuple[int, int, int]:
        """Return offset to the parent, its error and the round trip, all of the quickest round."""
        best: tuple[int, int, int] | None = None
        for round_index in range(ROUNDS):
            key = f"{self._prefix}/{session}/{place}/{round_index}"
            sent_ns = self._now_ns()
            store.set(f"{key}/ping", "")
            parent_ns = int(_await(store, f"{key}/pong", deadline))
            received_ns = self._now_ns()
            rtt_ns = received_ns - sent_ns
            if best is None or rtt_ns < best[2]:
                best = ((sent_ns + received_ns) // 2 - parent_ns, (rtt_ns + 1) // 2, rtt_ns)
        assert best is not None
        return best

    def _answer(self, store: Any, session: int, child: int, deadline: float) -> None:
        for round_index in range(ROUNDS):
            key = f"{self._prefix}/{session}/{child}/{round_index}"
            _await(store, f"{key}/ping", deadline)
            store.set(f"{key}/pong", str(self._now_ns()))


def _await(store: Any, key: str, deadline: float) -> str:
    """Return the key's value; raises the store's time-out error if it does not come in time."""
    store.wait([key], timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
    return str(store.get(key).decode())


def _until(deadline: float) -> float:
    """Return how long to wait for a thread that itself waits until `deadline`."""
    return max(deadline - time.monotonic(), 0.0) + GRACE_S
