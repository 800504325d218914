"""What a training loop calls on its rank: each call costs host time, leaves records and launches work on streams."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_jobs.collective_records import COLLECTIVES, comms_facts, message_annotation
from benchmarks.gpu_jobs.engine import Kernel, Meeting, Stream, Transfer
from benchmarks.gpu_jobs.gpu import Gpu
from benchmarks.gpu_jobs.groups import Group

BYTES_PER_US = 50_000  # of a link: 50 GB/s


@dataclass(kw_only=True)
class Rank(Gpu):
    """One process of a job, with its groups."""

    groups: dict[str, Group]
    meeting: Meeting

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sends: dict[Group, int] = {}
        self._draws: dict[Any, int] = {}
        self._last_of: dict[str | None, Kernel] = {}  # the last kernel of each communicator

    def collective(
        self,
        group: Group,
        kind: str,
        for_us: float,
        *,
        blocking: bool = False,
        splits: tuple[Sequence[int], Sequence[int]] = ((), ()),
        elements: int | None = None,
    ) -> Kernel:
        """Call a collective of c10d. Its stream waits for the current one, as in ProcessGroupNCCL::collective.

        With `blocking` the current stream waits for it at once. Otherwise `wait` does.
        """
        collective = COLLECTIVES[kind]
        elements = round(for_us * BYTES_PER_US / 4) if elements is None else elements
        transfer = self._collective_transfer(group, kind, for_us, elements)
        in_current = blocking and self.spec.blocking_on_compute_stream
        stream = self.stream if in_current else self.stream_of(group.uid)
        facts = comms_facts(self.spec, self.rank, group, collective, elements, transfer.sequence + 1, splits)
        with self.operator(collective.operator), self.operator("record_param_comms", **facts):
            self.wait_stream(stream, self.stream)
            with self.label(collective.annotation):
                kernel = self._communicate(collective.kernel, stream, [transfer], facts, group.uid)
        if blocking:
            self.wait(kernel)
        return kernel

    def exchange(self, group: Group, kind: str, kernel: str, for_us: float, elements: int) -> Kernel:
        """Call a library that exchanges data without c10d: a kernel on a stream of its own, without arguments.

        The current stream waits for it.
        """
        transfer = self._collective_transfer(group, kind, for_us, elements)
        stream = self.stream_of("exchange")
        self.wait_stream(stream, self.stream)
        launched = self._communicate(kernel, stream, [transfer], {}, None)
        self.wait(launched)
        return launched

    def send(self, group: Group, peer: int, for_us: float) -> Kernel:
        return self._message(group, "send", peer, for_us)

    def recv(self, group: Group, peer: int, for_us: float) -> Kernel:
        return self._message(group, "recv", peer, for_us)

    def batch_isend_irecv(self, group: Group, operations: Sequence[tuple[str, int, float]]) -> Kernel:
        """Send and receive in one kernel. `operations` are (send or recv, peer, transfer in microseconds).

        The operators only note what to do. ProcessGroupNCCL::endCoalescing launches the kernel after them, in an
        annotation of its own and in no operator, so that it has none of their arguments.
        """
        stream = self.stream_of(group.uid)
        transfers = []
        for kind, peer, for_us in operations:
            transfers.append(self._transfer(group, kind, peer, for_us))
            with self._message_operator(group, kind, peer, transfers[-1]):
                self.wait_stream(stream, self.stream)
        with self.label("nccl:coalesced"):
            return self._communicate(COLLECTIVES["send"].kernel, stream, transfers, {}, group.uid)

    # ---- how it is done -----------------------------------------------------------------------------------------

    def _collective_transfer(self, group: Group, kind: str, for_us: float, elements: int) -> Transfer:
        transfer_us = for_us * self.defect.collective_factor(group) * self._transfer_jitter(group)
        return self.meeting.join(
            self.rank,
            (group,),
            group=group,
            kind=kind,
            members=group.ranks,
            step=self.step_number,
            transfer_ns=round(1000 * transfer_us),
            size_bytes=4 * elements,
        )

    def _message(self, group: Group, kind: str, peer: int, for_us: float) -> Kernel:
        """Call a single send or receive: each pair of ranks has a communicator and a stream (getKeySendRecv)."""
        stream = self.stream_of((group.uid, min(self.rank, peer), max(self.rank, peer)))
        transfer = self._transfer(group, kind, peer, for_us)
        with self._message_operator(group, kind, peer, transfer) as facts:
            self.wait_stream(stream, self.stream)
            with self.label(message_annotation(group, kind, self.rank, peer)):
                return self._communicate(COLLECTIVES[kind].kernel, stream, [transfer], facts, None)

    def _transfer(self, group: Group, kind: str, peer: int, for_us: float) -> Transfer:
        source, destination = (self.rank, peer) if kind == "send" else (peer, self.rank)
        edge = (group.uid, source, destination)
        return self.meeting.join(
            self.rank,
            edge,
            group=group,
            kind="message",
            members=(source, destination),
            step=self.step_number,
            transfer_ns=round((for_us + self.defect.edge_us(peer)) * 1000 * self._transfer_jitter(edge)),
            size_bytes=round(for_us * BYTES_PER_US),
            source=source,
            destination=destination,
        )

    @contextmanager
    def _message_operator(self, group: Group, kind: str, peer: int, transfer: Transfer) -> Iterator[dict[str, Any]]:
        self._sends[group] = self._sends.get(group, 0) + 1
        collective = COLLECTIVES[kind]
        elements = transfer.size_bytes // 4
        facts = comms_facts(self.spec, self.rank, group, collective, elements, self._sends[group], peer=peer)
        with self.operator(collective.operator), self.operator("record_param_comms", **facts):
            yield facts

    def _communicate(
        self, name: str, stream: Stream, transfers: Sequence[Transfer], facts: dict[str, Any], communicator: str | None
    ) -> Kernel:
        """Launch a kernel that communicates. Those of a communicator run one after the other, on whichever stream."""
        late_ns = round(self.rng.uniform(0, 1000) * (self.spec.launch_us > 0))
        current, self.stream = self.stream, stream
        kernel = self.launch(
            name,
            "comm",
            "cudaLaunchKernelExC",
            430,
            transfers=transfers,
            late_ns=late_ns,
            in_order=stream is self.compute_stream,
            after=self._last_of.get(communicator),
            facts={"comms": facts},
        )
        self.stream = current
        if communicator is not None:
            self._last_of[communicator] = kernel
        return kernel

    def _transfer_jitter(self, key: Any) -> float:
        """Return a factor that all members of a transfer draw alike, whoever of them comes first."""
        self._draws[key] = self._draws.get(key, 0) + 1
        rng = random.Random(f"transfer {self.spec.seed} {key} {self._draws[key]}")
        return rng.uniform(1 - self.spec.jitter, 1 + self.spec.jitter)
