"""What a worker keeps of one rank: compact, picklable, no raw events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tracekit.model.actions import Actions, no_actions
from tracekit.model.bucket_runs import BucketRuns, no_bucket_runs
from tracekit.model.collectives import Collectives, no_collectives
from tracekit.model.communication import GroupKey, Joins
from tracekit.model.flops import FlopSums
from tracekit.model.fsdp_gathers import FsdpGathers, no_fsdp_gathers
from tracekit.model.gradients import GradientTimes, no_gradient_times
from tracekit.model.messages import Messages, no_messages
from tracekit.model.metadata import ClockMeasurement, DdpModule, MemoryUse, Mesh, PipelineLayout, Precision, RpcUse
from tracekit.model.notes import Note
from tracekit.model.step_tails import StepTails, no_tails
from tracekit.model.waits import Waits, no_waits

__all__ = [
    "CommunicationSum",
    "DdpPasses",
    "ExpertExchangeSum",
    "FsdpSum",
    "GradientSum",
    "PhasePart",
    "PhaseSums",
    "RankSummary",
    "StepParts",
    "TensorSum",
    "Traffic",
    "TrafficTime",
]


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """One step of one rank: integer nanoseconds, `step_ns` the exact sum of the four parts of definitions.md."""

    step: int
    start_ns: int
    complete: bool
    data_ns: int | None  # in the wrapped data iterator
    step_ns: int
    compute_ns: int
    comm_ns: int
    overlapped_comm_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class CommunicationSum:
    """Communication of one rank by group, kind and phase, over its complete steps."""

    group: GroupKey | None
    kind: str
    phase: str | None
    count: int
    size_bytes: int | None
    total_ns: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What a rank does in one group (None: not known): collectives, or messages."""

    group: GroupKey | None
    messages: bool


@dataclass(frozen=True, kw_only=True)
class TrafficTime:
    """Time of one rank in its complete steps during which exactly this was in flight. `charged`: which of it held the
    rank up, None where compute went on.
    """

    in_flight: tuple[Traffic, ...]
    charged: Traffic | None
    total_ns: int


@dataclass(frozen=True, kw_only=True)
class FsdpSum:
    """Communication of one rank for one module under FSDP, by kind and phase, over its complete steps. `module` is ""
    for the outermost, None for what no module is known of; `shards`: how many ranks take part, None where not known. Of
    `ahead_count` all-gathers it is known how long before their parameters were needed they were issued: `ahead_ns`
    together.
    """

    module: str | None
    unit_bytes: int | None
    shards: int | None
    phase: str | None
    kind: str
    count: int
    size_bytes: int | None
    exposed_ns: int
    ahead_count: int
    ahead_ns: int


@dataclass(frozen=True, kw_only=True)
class PhasePart:
    """One phase of one rank over its complete steps: `total_ns` is the exact sum of the other four."""

    phase: str
    total_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class PhaseSums:
    """What one rank did in its complete steps, by phase, and in them: backward passes, forwards run again within those
    (`recompute_*`), steps of a gradient scaler. None: not known.
    """

    parts: tuple[PhasePart, ...] = ()
    backward_passes: int | None = None
    recompute_count: int | None = None
    recompute_ns: int | None = None
    recompute_compute_ns: int | None = None
    scaled_steps: int | None = None
    skipped_steps: int | None = None
    precision: Precision | None = None


@dataclass(frozen=True, kw_only=True)
class TensorSum:
    """Communication of one rank in groups of one parallelism (tp, ep, cp) for one module, by kind and phase, over its
    complete steps. `module` is "" for the outermost, None for what no module is known of. `layer_ns`: how long the
    module ran in that phase, this communication included; None where that is not known. `inferred`: that the group is
    for this parallelism.
    """

    module: str | None
    parallelism: str
    phase: str | None
    kind: str
    count: int
    size_bytes: int | None
    exposed_ns: int
    layer_ns: int | None = None
    inferred: bool = False


@dataclass(frozen=True, kw_only=True)
class ExpertExchangeSum:
    """All-to-alls of one rank in one group and step for one module (None: not known, either of them): what those that
    bring tokens to experts brought to this rank's, and how long all of them were exposed.
    """

    group: GroupKey | None
    module: str | None
    step: int
    received_bytes: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class GradientSum:
    """Collectives by which a training loop reduced its gradients by hand in one step: how many, and how many of them
    were issued while a backward pass was running. `hideable_ns`: of their exposed time what the backward pass could
    cover. `parameters`: whose gradients these were, where that is known of each.
    """

    step: int
    count: int
    in_backward: int
    exposed_ns: int
    hideable_ns: int
    parameters: int | None


@dataclass(frozen=True, kw_only=True)
class DdpPasses:
    """Forward passes of DDP modules, and calls of optimizers, in the complete steps."""

    forwards: int = 0
    updates: int = 0

    def __add__(self, other: DdpPasses) -> DdpPasses:
        return DdpPasses(forwards=self.forwards + other.forwards, updates=self.updates + other.updates)


@dataclass(frozen=True, kw_only=True)
class RankSummary:
    """One rank's recording, all its windows."""

    rank: int
    world_size: int | None
    files: tuple[str, ...]
    run_id: str | None
    attempt: int
    host: str | None
    device: Literal["gpu", "cpu"]
    device_name: str | None
    strategies: tuple[str, ...]
    strategies_inferred: bool
    groups: tuple[GroupKey, ...]
    mesh: Mesh | None
    clock: ClockMeasurement | None
    ddp: tuple[DdpModule, ...]
    overhead_per_step_ns: int | None
    recorded_steps: tuple[int, ...]  # all of them, selected or not
    steps: tuple[StepParts, ...]
    communication: tuple[CommunicationSum, ...]
    event_count: int
    first_event_ns: int | None  # on the rank's wall clock
    notes: tuple[Note, ...]
    ddp_passes: DdpPasses = DdpPasses()
    ddp_inferred: bool = False  # from the order and sizes of all-reduces
    bucket_runs: BucketRuns = field(default_factory=no_bucket_runs)
    gradient_times: GradientTimes = field(default_factory=no_gradient_times)
    gradients: tuple[GradientSum, ...] = ()  # reduced by hand
    joins: Joins | None = None  # of the flight recorder's entries; None: nothing to join
    fsdp: tuple[FsdpSum, ...] = ()
    fsdp_gathers: FsdpGathers = field(default_factory=no_fsdp_gathers)
    tensor: tuple[TensorSum, ...] = ()
    traffic: tuple[TrafficTime, ...] = ()
    expert_exchanges: tuple[ExpertExchangeSum, ...] = ()
    phases: PhaseSums = PhaseSums()
    flops: FlopSums = field(default_factory=FlopSums)
    memory: MemoryUse | None = None
    collectives: Collectives = field(default_factory=no_collectives)
    tails: StepTails = field(default_factory=no_tails)
    waits: Waits = field(default_factory=no_waits)
    host_id: str | None = None  # processes with the same one share a clock
    messages: Messages = field(default_factory=no_messages)
    actions: Actions = field(default_factory=no_actions)
    pipeline: PipelineLayout | None = None
    pipeline_inferred: bool = False  # its layout, from the order of its actions
    overhead_options: tuple[str, ...] = ()  # torch.profiler's that were on
    pipeline_ranks: tuple[int, ...] = ()  # of the pipeline that this rank is in, ascending
    rpc: RpcUse | None = None

    @property
    def is_server(self) -> bool:
        """A worker of RPC that has no steps: it serves the others' calls, and that is all its recording holds."""
        return self.rpc is not None and not self.recorded_steps
