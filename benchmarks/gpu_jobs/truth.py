"""What is known of a simulated job, from the state of the simulation. Times are nanoseconds of true time.

Definitions are those of `docs/definitions.md`; the arithmetic is written apart from tracekit.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gpu_jobs.spec import Defect


@dataclass(frozen=True, kw_only=True)
class RankStep:
    """A step of a rank: start to end is its window, and compute to idle are the parts that it consists of.

    `step` is the number in `ProfilerStep#`, here and below.
    """

    rank: int
    step: int
    start_ns: int
    end_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int
    comm_ns: int
    overlapped_comm_ns: int


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A collective on all its members. Point-to-point operations are in `Truth.messages` instead.

    Attributes:
        group: name of the group: `default_pg`, `dp`, `tp`, `pp`, `ep`.
        kind: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`.
        members: ranks, ascending; the following tuples are in their order.
        sequence: place among the operations of its group (these members), from 0.
        arrival_ns: when each member was ready: at its launch, or at the end of the device work that it depends on.
        start_ns, end_ns: of the kernel on each member.
        transfer_ns: last end less the later of the last arrival and the end of the operation before on the stream of
            communication, on whichever member that is latest.
        queued_ns: from the last arrival to the beginning of the transfer.
    """

    group: str
    kind: str
    members: tuple[int, ...]
    step: int
    sequence: int
    arrival_ns: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    size_bytes: int
    transfer_ns: int
    queued_ns: int

    @property
    def last_arriver(self) -> int:
        return self.members[self.arrival_ns.index(max(self.arrival_ns))]


@dataclass(frozen=True, kw_only=True)
class Message:
    """A point-to-point transfer. `ready` is when each side was there; it ends `transfer_ns` after the later of them."""

    group: str
    source: int
    destination: int
    step: int
    source_ready_ns: int
    destination_ready_ns: int
    end_ns: int
    transfer_ns: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Action:
    """What a stage does with a microbatch: `F` or `B`, from its first to its last compute kernel on the device."""

    rank: int
    step: int
    stage: int
    microbatch: int
    kind: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Truth:
    """All that is known of a job.

    Attributes:
        steps: by rank, then by step.
        actions: of a pipeline.
        bubble_ns: mean bubble of each rank in a step: from the first to the last action over the ranks of its pipeline,
            less its own actions. Empty without a pipeline.
        bubble_ratio: sum of bubbles over sum of those spans; None without a pipeline.
        clock_ahead_ns: by rank, how far its clock is ahead at the middle of the job.
        mean_step_ns: mean duration over ranks of the settled steps: without the first and the last one.
        counterfactual_step_ns: the same of the same job without the defect.
    """

    steps: tuple[RankStep, ...]
    operations: tuple[Operation, ...]
    messages: tuple[Message, ...]
    actions: tuple[Action, ...]
    bubble_ns: tuple[float, ...]
    bubble_ratio: float | None
    clock_ahead_ns: tuple[float, ...]
    defect: Defect | None
    mean_step_ns: float
    counterfactual_step_ns: float

    @property
    def saving_ns(self) -> float:
        """Return by how much a step would be shorter without the defect."""
        return self.mean_step_ns - self.counterfactual_step_ns

    def of_rank(self, rank: int) -> tuple[RankStep, ...]:
        return tuple(step for step in self.steps if step.rank == rank)
