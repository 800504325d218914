"""Times collectives and messages of various sizes on a process group.

On several hosts three groups are measured: all ranks, those of one host, and one rank of each host.

A repeat is a barrier and then several calls in a row, until the last has ended on this rank's device. The time of the
slowest rank counts. The measurement communicates on the given groups, so it must not run during training.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tracekit
from tracekit.capture.job.device import this_device
from tracekit.capture.job.process import identify
from tracekit.errors import InputError
from tracekit.model.links import (
    LINKS_VERSION,
    LeftOut,
    LinkGroup,
    LinkHost,
    LinkMeasurements,
    LinkRow,
    bus_factor,
)

KINDS = (
    *("all_reduce", "reduce_scatter", "all_gather", "all_to_all"),
    *("broadcast", "reduce", "scatter", "gather", "send_recv"),
)
ELEMENT_BYTES = 4  # float32
LEAST_REPEAT_NS = 2_000_000  # a shorter repeat would measure the barrier
MOST_CALLS = 50  # in a repeat

__all__ = ["ELEMENT_BYTES", "KINDS", "Effort", "job_device", "measure_job", "measure_links"]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to measure: sizes are `min_bytes` times powers of four, up to `max_bytes`.

    Attributes:
        min_bytes: the smallest size of the full array.
        max_bytes: the largest size.
        warmup: calls before the first repeat.
        repeats: repeats of each size.
        seconds: after this time no further size is begun.
    """

    min_bytes: int = 4096
    max_bytes: int = 16 << 20
    warmup: int = 3
    repeats: int = 10
    seconds: float = 60.0

    def sizes(self) -> list[int]:
        sizes = [self.min_bytes]
        while sizes[-1] * 4 <= self.max_bytes:
            sizes.append(sizes[-1] * 4)
        return sizes


def measure_job(*, kinds: Sequence[str] = KINDS, effort: Effort | None = None) -> LinkMeasurements | None:
    """Join the job that the environment describes, and measure all its ranks. Called in each of its processes.

    It uses NCCL if every process of this host has a GPU, else Gloo. Return the result on rank 0, None on the others.
    Raises InputError if the processes cannot connect to each other.
    """
    import torch
    import torch.distributed as dist

    device = job_device()
    if device[0] == "cuda":
        torch.cuda.set_device(torch.device(*device))
    try:
        dist.init_process_group("nccl" if device[0] == "cuda" else "gloo")
    except (RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        hint = "is MASTER_ADDR reachable from all hosts, and each rank started once?"
        raise InputError(f"the ranks of the job could not join: {reason}", hint=hint) from error
    try:
        return measure_links(kinds=kinds, effort=effort)
    finally:
        dist.destroy_process_group()


def measure_links(
    process_group: Any = None, *, kinds: Sequence[str] = KINDS, effort: Effort | None = None
) -> LinkMeasurements | None:
    """Measure the group, by default all ranks and with several hosts also parts of them. Called by all its ranks.

    Return the result on the first rank of the group, None on the others.
    """
    import torch
    import torch.distributed as dist

    effort = effort or Effort()
    device = torch.device(*job_device())
    whole = process_group or dist.group.WORLD
    members = dist.get_process_group_ranks(whole)
    hosts = _hosts(dist, whole, members)
    groups = [(whole, LinkGroup(id=0, link=_link(members, hosts), ranks=members))]
    groups += _parts(dist, hosts) if process_group is None else []
    deadline = time.monotonic() + effort.seconds
    found: list[tuple[list[LinkRow], list[LeftOut]]] = []
    for group, described in groups:
        dist.barrier(group=whole)  # ranks outside of the measured group must be idle
        mine: tuple[list[LinkRow], list[LeftOut]] = ([], [])
        if dist.get_rank() in described.ranks and len(described.ranks) > 1:
            bench = _Bench(torch, dist, group, described, device, effort, deadline)
            for kind in kinds:
                bench.measure(kind)
            mine = bench.rows, bench.left_out
        found.append(mine)
    if dist.get_rank() != members[0]:
        return None
    return LinkMeasurements(
        version=LINKS_VERSION,
        tracekit=tracekit.__version__,
        torch=str(torch.__version__),
        world_size=dist.get_world_size(),
        backend=str(dist.get_backend(whole)),
        device=this_device(),
        hosts=hosts,
        groups=[described for _, described in groups],
        rows=[row for rows, _ in found for row in rows],
        left_out=[missing for _, left_out in found for missing in left_out],
    )


class _Bench:
    """The measurement of one group. All its ranks decide alike, as each decision is reduced over them."""

    def __init__(
        self, torch: Any, dist: Any, group: Any, described: LinkGroup, device: Any, effort: Effort, deadline: float
    ) -> None:
        self.rows: list[LinkRow] = []
        self.left_out: list[LeftOut] = []
        self._torch, self._dist, self._group, self._device = torch, dist, group, device
        self._ranks, self._id = described.ranks, described.id
        self._effort, self._deadline = effort, deadline

    def measure(self, kind: str) -> None:
        for size in self._effort.sizes():
            elements = max(size // ELEMENT_BYTES // len(self._ranks), 1) * len(self._ranks)
            if self._worst(int(time.monotonic() > self._deadline)):
                self._leave_out(kind, elements * ELEMENT_BYTES, f"{self._effort.seconds:g} s were up")
                return
            call, reason = self._tried(kind, elements)
            if self._worst(int(call is None)) or call is None:
                self._leave_out(kind, None, reason or "it failed on another rank")
                return
            self.rows.append(self._timed(kind, elements * ELEMENT_BYTES, call))

    def _tried(self, kind: str, elements: int) -> tuple[Callable[[], None] | None, str]:
        """Return the collective after one call, or None and the reason if backend or memory do not allow it."""
        try:
            call = self._call(kind, elements)
            call()
            self._settle()
        except Exception as error:
            return None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return call, ""

    def _timed(self, kind: str, size_bytes: int, call: Callable[[], None]) -> LinkRow:
        for _ in range(self._effort.warmup - 1):
            call()
        self._settle()
        once_ns = self._worst(self._elapsed_ns(call, 1))
        calls = min(max(LEAST_REPEAT_NS // max(once_ns, 1), 1), MOST_CALLS)
        own_ns = [self._elapsed_ns(call, calls) for _ in range(self._effort.repeats)]
        slowest_ns = [max(total // calls, 1) for total in self._worst_of(own_ns)]
        time_ns = int(statistics.median(slowest_ns))
        algbw_bps = size_bytes / time_ns * 1e9
        return LinkRow(
            kind=kind,
            group=self._id,
            size_bytes=size_bytes,
            repeats=self._effort.repeats,
            time_ns=time_ns,
            min_ns=min(slowest_ns),
            algbw_bps=algbw_bps,
            busbw_bps=algbw_bps * bus_factor(kind, len(self._ranks)),
        )

    def _elapsed_ns(self, call: Callable[[], None], calls: int) -> int:
        self._dist.barrier(group=self._group)
        self._settle()
        begin_ns = time.perf_counter_ns()
        for _ in range(calls):
            call()
        self._settle()
        return time.perf_counter_ns() - begin_ns

    def _call(self, kind: str, elements: int) -> Callable[[], None]:
        """Return the collective with its buffers; the full array has `elements` elements."""
        dist, group, ranks = self._dist, self._group, self._ranks
        first, rank, shard = ranks[0], dist.get_rank(), elements // len(ranks)
        whole = self._torch.ones(elements, device=self._device)
        part = self._torch.ones(shard, device=self._device)
        parts = list(whole.chunk(len(ranks))) if rank == first else None
        match kind:
            case "all_reduce":
                whole.zero_()  # repeated sums of ones would overflow
                return lambda: dist.all_reduce(whole, group=group)
            case "reduce_scatter":  # older versions have the second name; also below
                reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
                return lambda: reduce_scatter(part, whole, group=group)
            case "all_gather":
                all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
                return lambda: all_gather(whole, part, group=group)
            case "all_to_all":
                other = self._torch.empty_like(whole)
                return lambda: dist.all_to_all_single(other, whole, group=group)
            case "broadcast":
                return lambda: dist.broadcast(whole, src=first, group=group)
            case "reduce":
                whole.zero_()
                return lambda: dist.reduce(whole, dst=first, group=group)
            case "scatter":
                return lambda: dist.scatter(part, parts, src=first, group=group)
            case "gather":
                return lambda: dist.gather(part, parts, dst=first, group=group)
            case "send_recv" if rank == first:
                return lambda: dist.send(whole, dst=ranks[1], group=group)
            case "send_recv" if rank == ranks[1]:
                return lambda: dist.recv(whole, src=first, group=group)
            case "send_recv":
                return lambda: None
        raise ValueError(f"no collective {kind}")

    def _settle(self) -> None:
        """Wait for the device. Collectives on the CPU block."""
        if self._device.type != "cpu":
            getattr(self._torch, self._device.type).synchronize()

    def _worst(self, value: int) -> int:
        return self._worst_of([value])[0]

    def _worst_of(self, values: list[int]) -> list[int]:
        """Return the largest of each value over the ranks."""
        found = self._torch.tensor(values, dtype=self._torch.int64, device=self._device)
        self._dist.all_reduce(found, op=self._dist.ReduceOp.MAX, group=self._group)
        return [int(value) for value in found.tolist()]

    def _leave_out(self, kind: str, size_bytes: int | None, reason: str) -> None:
        self.left_out.append(LeftOut(kind=kind, group=self._id, size_bytes=size_bytes, reason=reason))


def _hosts(dist: Any, group: Any, members: Sequence[int]) -> list[LinkHost]:
    """Return the hosts of the group in the order of their first rank."""
    own = identify()
    found: list[Any] = [None] * len(members)
    dist.all_gather_object(found, (own.host, own.host_id), group=group)
    ranks: dict[tuple[str, str], list[int]] = {}
    for rank, host in zip(members, found, strict=True):
        ranks.setdefault(host, []).append(rank)
    return [LinkHost(host=host, host_id=host_id, ranks=there) for (host, host_id), there in ranks.items()]


def _link(members: Sequence[int], hosts: Sequence[LinkHost]) -> Literal["host", "network", "mixed"]:
    on_each = [len(there) for host in hosts if (there := set(members) & set(host.ranks))]
    if len(on_each) == 1:
        return "host"
    return "network" if max(on_each) == 1 else "mixed"


def _parts(dist: Any, hosts: Sequence[LinkHost]) -> list[tuple[Any, LinkGroup]]:
    """Return two more groups on several hosts: the ranks of the first host, and the first rank of each host.

    Rank 0 is in both.
    """
    if len(hosts) == 1 or max(len(host.ranks) for host in hosts) == 1:
        return []
    within, across = hosts[0].ranks, [host.ranks[0] for host in hosts]
    return [
        (dist.new_group(within), LinkGroup(id=1, link="host", ranks=within)),
        (dist.new_group(across), LinkGroup(id=2, link="network", ranks=across)),
    ]


def job_device() -> tuple[str, int] | tuple[str]:
    """Return the GPU of this process if every process of this host has one, else the CPU."""
    torch = sys.modules["torch"]
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if torch.cuda.is_available() and torch.cuda.device_count() >= wanted:
        return "cuda", identify().local_rank
    return ("cpu",)
