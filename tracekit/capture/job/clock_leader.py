"""Measures the clocks of hosts against each other: one process of each host, on threads of its own.

The hosts form a tree of fan-out 16 with the host of rank 0 at its root. A host that wants to know its offset asks its
parent, which answers one host after the other, in the order in which they ask. A host that comes late so holds up
nobody. Asker and parent then exchange `ROUNDS` messages: the asker sends a ping through the store, the parent answers
with its own time. The round with the shortest round trip counts: the offset is the middle of the round trip minus the
parent's time, and its error is at most half the round trip (Cristian, "Probabilistic clock synchronization", 1989).
Offsets and errors add up along the tree. A parent's own offset was measured at another moment, for which the error
grows by what a clock may drift.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tracekit.capture.job.process import Identity
from tracekit.model.metadata import ClockSample
from tracekit.model.metadata.json_text import decode, encode

ROUNDS = 40
FAN_OUT = 16
DRIFT_PPM = 100
LINGER_S = 5.0
REPLY_S = 1.0  # a host that does not go on after this is left
FIRST_PAUSE_S, LAST_PAUSE_S = 0.002, 0.05  # between looks for a key that may be long in coming
PREFIX = "tracekit/clock"


class ClockKeys:
    """Keys of one probe in the self._store. They contain the attempt, as a store can outlive ranks."""

    def __init__(self, attempt: int, number: int) -> None:
        self._prefix = f"{PREFIX}/{attempt}/{number}"

    @property
    def root_host(self) -> str:
        return f"{self._prefix}/root"

    @property
    def root_index(self) -> str:
        return f"{self._prefix}/root_index"

    @property
    def hosts(self) -> str:
        """A counter of hosts."""
        return f"{self._prefix}/hosts"

    def registered(self, host_id: str) -> str:
        """A counter of the ranks of a host."""
        return f"{self._prefix}/host/{host_id}"

    def sample(self, host_id: str, session: int) -> str:
        return f"{self._prefix}/sample/{host_id}/{session}"

    def latest(self, node: int) -> str:
        """The last sample of the host at a node of the tree."""
        return f"{self._prefix}/latest/{node}"

    def queued(self, parent: int) -> str:
        """A counter of the questions to a parent."""
        return f"{self._prefix}/queued/{parent}"

    def question(self, parent: int, number: int) -> str:
        return f"{self._prefix}/question/{parent}/{number}"

    def ping(self, asker: str, round_index: int) -> str:
        return f"{self._prefix}/ping/{asker}/{round_index}"

    def pong(self, asker: str, round_index: int) -> str:
        return f"{self._prefix}/pong/{asker}/{round_index}"


class ClockLeader:
    """Measures for one host; `index` counts hosts in order of registration.

    `store` is the capture's own client. Other threads use it, too, so only an answer that comes at once is waited for.

    The threads are daemons, but must be ended by `close`: one that is in a call of torch while the process exits
    aborts it.
    """

    def __init__(self, store: Any, keys: ClockKeys, identity: Identity, index: int, now_ns: Callable[[], int]) -> None:
        self._store = store
        self._keys = keys
        self._host_id = identity.host_id
        self._world_size = identity.world_size
        self._index = index
        self._now_ns = now_ns
        self._sessions: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._ends: float | None = None  # when to stop answering, by the monotonic clock
        self._threads: list[threading.Thread] = []
        self._start(self._measure_sessions, "tracekit-clock")

    def measure(self, session: int) -> None:
        self._sessions.put(session)

    def linger(self) -> None:
        """Measure no more, and end after `LINGER_S`: other hosts may still be at their last measurement."""
        self._ends = time.monotonic() + LINGER_S
        self._sessions.put(None)

    def close(self) -> None:
        """End the threads; may be called again."""
        self._closed.set()
        self._sessions.put(None)
        for thread in self._threads:
            thread.join(REPLY_S)

    def _start(self, target: Callable[[], None], name: str) -> None:
        def run() -> None:
            with contextlib.suppress(Exception):  # the store is gone; the error depends on the store
                target()

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _measure_sessions(self) -> None:
        node: int | None = None
        answers = False
        while (session := self._sessions.get()) is not None and not self._closed.is_set():
            if node is None:
                node = self._find_node()
            if not answers and self._may_have_children(node):
                self._start(lambda node=node: self._answer_askers(node), "tracekit-clock-answers")  # type: ignore[misc]
                answers = True
            if node == 0:
                sample = ClockSample(at_ns=self._now_ns(), offset_ns=0, error_ns=0, rtt_ns=0)
            else:
                sample = self._ask_parent(session, node)
            answer = encode(sample)
            self._store.set(self._keys.latest(node), answer)
            self._store.set(self._keys.sample(self._host_id, session), answer)

    def _find_node(self) -> int:
        """Return this host's node of the tree, from 0: the order of registration, but with the host of rank 0 first."""
        if self._await(self._keys.root_host).decode() == self._host_id:
            self._store.set(self._keys.root_index, str(self._index))
            return 0
        return int(self._await(self._keys.root_index)) if self._index == 0 else self._index

    def _may_have_children(self, node: int) -> bool:
        """Return whether hosts may come whose parent this one is: at most as many as there are other ranks."""
        is_alone = self._store.add(self._keys.registered(self._host_id), 0) == self._world_size
        return not is_alone and node * FAN_OUT + 1 < self._world_size

    def _ask_parent(self, session: int, node: int) -> ClockSample:
        parent = (node - 1) // FAN_OUT
        best, attempt = None, 0
        while best is None:
            best, attempt = self._quickest_round(parent, f"{node}/{session}/{attempt}"), attempt + 1
        rtt_ns, at_ns, offset_ns, parent_ns = best
        error_ns = (rtt_ns + 1) // 2
        if parent:
            latest = decode(self._await(self._keys.latest(parent)), ClockSample)
            offset_ns += latest.offset_ns
            error_ns += latest.error_ns + abs(parent_ns - latest.at_ns) * DRIFT_PPM // 1_000_000
        return ClockSample(at_ns=at_ns, offset_ns=offset_ns, error_ns=error_ns, rtt_ns=rtt_ns)

    def _quickest_round(self, parent: int, asker: str) -> tuple[int, int, int, int] | None:
        """Ask and exchange pings; return round trip, moment, offset and the parent's time of the quickest, in ns.

        None if the parent stopped to answer before the first.
        """
        number = self._store.add(self._keys.queued(parent), 1)
        self._store.set(self._keys.question(parent, number), asker)
        best: tuple[int, int, int, int] | None = None
        self._store.set(self._keys.ping(asker, 0), "")
        self._await(self._keys.pong(asker, 0))  # the parent may have to answer others first
        with contextlib.suppress(Exception):  # a time-out, whose type depends on the store: what was measured counts
            for round_index in range(1, ROUNDS + 1):
                sent_ns = self._now_ns()
                self._store.set(self._keys.ping(asker, round_index), "")
                parent_ns = int(self._await_reply(self._keys.pong(asker, round_index)))
                received_ns = self._now_ns()
                middle_ns = (sent_ns + received_ns) // 2
                found = (received_ns - sent_ns, middle_ns, middle_ns - parent_ns, parent_ns)
                best = found if best is None else min(best, found)
        return best

    def _answer_askers(self, node: int) -> None:
        number = 0
        while True:
            number += 1
            asker = self._await(self._keys.question(node, number)).decode()
            with contextlib.suppress(Exception):  # it has gone
                for round_index in range(ROUNDS + 1):
                    self._await_reply(self._keys.ping(asker, round_index))
                    self._store.set(self._keys.pong(asker, round_index), str(self._now_ns()))

    def _await(self, key: str) -> bytes:
        """Return the key's value when it is there, which may be never. Raises ConnectionAbortedError at the end.

        It polls: a `wait` of a TCPStore cannot be ended, and prints a warning for each time-out.
        """
        pause_s = FIRST_PAUSE_S
        while not self._store.check([key]):
            if self._closed.wait(pause_s) or (self._ends is not None and time.monotonic() >= self._ends):
                raise ConnectionAbortedError("closed")
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        return bytes(self._store.get(key))

    def _await_reply(self, key: str) -> bytes:
        """Return the key's value, which a host that is at work sets at once. Raises if it does not."""
        self._store.wait([key], timedelta(seconds=REPLY_S))
        return bytes(self._store.get(key))
