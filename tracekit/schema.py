"""Every table tracekit returns: its columns with type, unit and meaning, once.

The DataFrames of a result, the JSON contract, exports and the documentation all follow from here. A column whose type
ends in `?` may be null: unknown, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BUCKETS",
    "BUCKETS_BY_INDEX",
    "BUCKET_MAP",
    "CLOCK",
    "COLLECTIVES",
    "COMMUNICATION",
    "COMMUNICATION_BY_KIND",
    "CRITICAL_PATH",
    "FSDP",
    "FSDP_BY_MODULE",
    "MEMORY",
    "PHASES",
    "PHASES_BY_PHASE",
    "PHASE_FACTS",
    "PIPELINE_RANKS",
    "PIPELINE_STAGES",
    "POINT_TO_POINT",
    "RANKS",
    "RPC",
    "RPC_BY_FUNCTION",
    "RPC_UNJOINED",
    "STEPS",
    "STRAGGLERS",
    "TABLES",
    "TENSOR",
    "TENSOR_BY_MODULE",
    "Column",
    "Table",
    "records",
]

Type = Literal["int", "int?", "float", "float?", "str", "str?", "list", "list?", "bool"]
_DTYPES = {"int": "int64", "int?": "Int64", "float": "float64", "float?": "object", "bool": "bool"}


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]

    def frame(self, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
        """These columns in this order; nullable integers as Int64, text and nullable floats as objects."""
        import pandas as pd  # here: workers do not pay for it

        names = [column.name for column in self.columns]
        data = {
            column.name: pd.Series([row[column.name] for row in rows], dtype=_DTYPES.get(column.type, "object"))
            for column in self.columns
        }
        return pd.DataFrame(data, columns=names)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain Python values, null as None: the inverse of `Table.frame`."""
    import pandas as pd

    def plain(value: object) -> object:
        return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value

    columns = {str(name): [plain(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


_PARTS = (
    Column("step_ns", "int", "ns", "Length of the window: compute + exposed_comm + exposed_copy + idle, exactly."),
    Column("compute_ns", "int", "ns", "Time covered by compute."),
    Column("comm_ns", "int", "ns", "Time covered by communication."),
    Column("overlapped_comm_ns", "int", "ns", "Communication under compute."),
    Column("exposed_comm_ns", "int", "ns", "Communication that no compute covers."),
    Column("exposed_copy_ns", "int", "ns", "Copies that neither compute nor communication cover."),
    Column("idle_ns", "int", "ns", "Time that no lane covers, measured as gaps."),
    Column("overlap_ratio", "float?", "ratio", "overlapped_comm / comm; null without communication."),
)
_RANK = Column("rank", "int", "", "Global rank.")

RANKS = Table(
    "ranks",
    (_RANK, Column("steps", "int", "", "Complete steps that the sums are over."), *_PARTS),
)
STEPS = Table(
    "steps",
    (
        _RANK,
        Column("step", "int", "", "Number of the step, as recorded."),
        Column("start_ns", "int", "ns", "Begin of the window, on the rank's wall clock."),
        Column("complete", "bool", "", "Whether the step was closed and its device events recorded."),
        Column("data_ns", "int?", "ns", "Time in the wrapped data iterator; null when none was wrapped."),
        *_PARTS,
    ),
)
COMMUNICATION = Table(
    "communication",
    (
        _RANK,
        Column("group", "int?", "", "Id in `groups`; null when the trace does not tell."),
        Column("kind", "str", "", "all_reduce, all_gather, ...; unclassified: looks like communication."),
        Column("phase", "str?", "", "forward, backward or optimizer, by its launch."),
        Column("count", "int", "", "Events launched in complete steps."),
        Column("size_bytes", "int?", "bytes", "Sum of the full arrays; null when one is unknown."),
        Column("total_ns", "int", "ns", "Time covered by these events. Rows may overlap."),
        Column("exposed_ns", "int", "ns", "The part of it that no compute covers."),
    ),
)
COMMUNICATION_BY_KIND = Table(
    "communication_by_kind",
    (
        Column("kind", "str", "", "all_reduce, all_gather, ..."),
        Column("phase", "str?", "", "forward, backward or optimizer."),
        Column("group", "str?", "", "Parallelism of the group, else its description."),
        Column("ranks", "int", "", "Ranks that take part; the means are over them and their complete steps."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("total_ns", "float", "ns", "Mean time a step."),
        Column("exposed_ns", "float", "ns", "Mean time a step that no compute covers."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
)
CLOCK = Table(
    "clock",
    (
        _RANK,
        Column("method", "str", "", "probe: measured while recording; collectives: fitted on their ends; none."),
        Column("offset_ns", "int", "ns", "This rank's clock minus the reference's; t_run = t_rank - offset."),
        Column("drift_ppm", "float?", "ppm", "Change of the offset over time; null when unknown."),
        Column("error_ns", "int?", "ns", "Half-width of the uncertainty; null when unknown."),
        Column("at_ns", "int", "ns", "When the offset holds, on the rank's clock: a drift counts from there."),
        Column("steps", "list", "", "Other offsets later on, from_ns each: offset_ns at at_ns."),
    ),
)
COLLECTIVES = Table(
    "collectives",
    (
        Column("group", "int", "", "Id in `groups`."),
        Column("kind", "str", "", "all_reduce, all_gather, ..."),
        Column("count", "int", "", "Instances in the steps that all ranks completed."),
        Column("size_bytes", "int?", "bytes", "The full array."),
        Column("matched_by", "str", "", "seq: by sequence ids; order: by the order within the group."),
        Column("ranks", "int", "", "Ranks of the group that are there."),
        Column("link", "str?", "", "host: its ranks share one; network: each has its own; mixed; null: not known."),
        Column("skew_p50_ns", "int?", "ns", "Median time from the first to the last arrival; null: not significant."),
        Column("skew_max_ns", "int?", "ns", "The longest; null: below the clocks' uncertainty."),
        Column("wait_mean_ns", "int?", "ns", "Mean over ranks from the own to the last arrival; null likewise."),
        Column("transfer_p50_ns", "int", "ns", "Median time from the last arrival to the end."),
        Column("algbw_bps", "float?", "B/s", "Size by that time."),
        Column("busbw_bps", "float?", "B/s", "algbw times the factor of its kind and number of ranks (nccl-tests)."),
        Column("link_share", "float?", "ratio", "Of the bandwidth of idle links (--links); null: not measured."),
        Column("error_ns", "int?", "ns", "Uncertainty of the skew; null: clocks that cannot be compared."),
        Column("significant", "bool", "", "Whether any skew is above that uncertainty."),
    ),
)
_BUCKET = (
    Column("module", "str", "", "Name of the DDP module."),
    Column("index", "int", "", "Index of the bucket, in order of launch."),
)
BUCKET_MAP = Table(
    "bucket_map",
    (
        *_BUCKET,
        Column("size_bytes", "int", "bytes", "Size of the bucket."),
        Column("dtype", "str", "", "Data type of its gradients."),
        Column("parameters", "list", "", "Qualified names of its parameters."),
    ),
)
BUCKETS = Table(
    "buckets",
    (
        _RANK,
        Column("step", "int", "", "Number of the step, as recorded."),
        *_BUCKET,
        Column("ready_ns", "int", "ns", "When its last gradient was there, from the step's start."),
        Column("launch_ns", "int", "ns", "When it was launched, from the step's start."),
        Column("start_ns", "int", "ns", "When its reduction began, from the step's start."),
        Column("end_ns", "int", "ns", "When its reduction ended, from the step's start."),
        Column("exposed_ns", "int", "ns", "How much of its reduction no compute covers."),
        Column("busbw_bps", "float?", "bytes/s", "Bus bandwidth of its transfer, from the last rank's arrival on."),
    ),
)
BUCKETS_BY_INDEX = Table(
    "buckets_by_index",
    (
        *_BUCKET,
        Column("ready_ns", "float", "ns", "From the step's start; like what follows mean over ranks and steps."),
        Column("queued_ns", "float", "ns", "From its launch to its start."),
        Column("total_ns", "float", "ns", "From its start to its end, waiting for other ranks included."),
        Column("exposed_ns", "float", "ns", "How much of that no compute covers."),
        Column("busbw_bps", "float?", "bytes/s", "Median bus bandwidth."),
        Column("worst_rank", "int", "", "Rank on which most of it is exposed."),
        Column("worst_exposed_ns", "float", "ns", "How much, mean over its steps."),
    ),
)
_FSDP_MODULE = Column(
    "module", "str?", "", 'Name below the outermost, which is ""; null: in FSDP\'s groups, but of none.'
)
_FSDP_PHASE = Column("phase", "str?", "", "forward, backward or optimizer, by its launch.")
FSDP = Table(
    "fsdp",
    (
        _RANK,
        _FSDP_MODULE,
        Column("unit_bytes", "int?", "bytes", "Unsharded parameters of the module; null without tracekit's capture."),
        _FSDP_PHASE,
        Column("kind", "str", "", "all_gather, reduce_scatter, all_reduce (across replicas), ..."),
        Column("count", "int", "", "Collectives launched in complete steps."),
        Column("size_bytes", "int?", "bytes", "Sum of the full arrays; null when one is unknown."),
        Column("exposed_ns", "int", "ns", "Time that no compute covers; of shared time the first of a kind has all."),
        Column("prefetch_ns", "int?", "ns", "Mean host time from issue to need of an all-gather; null when unknown."),
    ),
)
FSDP_BY_MODULE = Table(
    "fsdp_by_module",
    (
        _FSDP_MODULE,
        _FSDP_PHASE,
        Column("kind", "str", "", "all_gather, reduce_scatter, ..."),
        Column("ranks", "int", "", "Ranks that take part; the means are over them and their complete steps."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("exposed_ns", "float", "ns", "Mean time a step that no compute covers."),
        Column("prefetch_ns", "float?", "ns", "Mean host time from issue to need of an all-gather; null when unknown."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
)
_PHASE_PARTS = ("total_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_PHASE_PART_MEANINGS = {
    "total_ns": "Time in the phase: the phases sum to step_ns, the four parts to this.",
    "compute_ns": "Time covered by compute.",
    "exposed_comm_ns": "Communication that no compute covers.",
    "exposed_copy_ns": "Copies that neither compute nor communication cover.",
    "idle_ns": "Time that no lane covers.",
}
_STEP_PHASE = Column(
    "phase", "str", "", "data, forward, backward, optimizer (clipping, zero_grad ... included) or other."
)
PHASES = Table(
    "phases",
    (_RANK, _STEP_PHASE, *(Column(part, "int", "ns", _PHASE_PART_MEANINGS[part]) for part in _PHASE_PARTS)),
)
PHASES_BY_PHASE = Table(
    "phases_by_phase",
    (
        _STEP_PHASE,
        Column("ranks", "int", "", "Ranks that the means are over, and over their complete steps."),
        Column("share", "float", "ratio", "Of the mean step."),
        *(Column(part, "float", "ns", f"Mean a step. {_PHASE_PART_MEANINGS[part]}") for part in _PHASE_PARTS),
        Column("worst_rank", "int", "", "The rank with the most time in the phase."),
        Column("worst_total_ns", "float", "ns", "Its time a step."),
    ),
)
PHASE_FACTS = Table(
    "phase_facts",
    (
        _RANK,
        Column("steps", "int", "", "Complete steps that the sums are over."),
        Column("backward_passes", "int?", "", "Backward passes in them; null without tracekit's capture."),
        Column("micro_steps", "float?", "", "Backward passes a step."),
        Column("recompute_count", "int?", "", "Checkpointed forwards that backward passes ran again."),
        Column("recompute_ns", "int?", "ns", "Time in them; part of backward."),
        Column("recompute_compute_ns", "int?", "ns", "The part of it covered by compute."),
        Column("scaled_steps", "int?", "", "Optimizer steps by way of a gradient scaler."),
        Column("skipped_steps", "int?", "", "Those skipped for infinite gradients; null when the device decided."),
        Column("autocast", "list?", "", "Data types that autocast was used with."),
        Column("parameter_dtypes", "list?", "", "Data types of parameters, the one with the most bytes first."),
    ),
)
MEMORY = Table(
    "memory",
    (
        _RANK,
        Column(
            "parameter_bytes", "int?", "bytes", "Parameters of live modules on this rank; shared memory counts once."
        ),
        Column("gradient_bytes", "int?", "bytes", "Their gradients after a backward pass."),
        Column("optimizer_bytes", "int?", "bytes", "Optimizer state, and parameters that only an optimizer has."),
        Column("peak_bytes", "int?", "bytes", "Most that the device's allocator held; of a CPU rank, the process."),
    ),
)
_TENSOR_MODULE = Column("module", "str?", "", 'Name below the outermost, which is ""; null: no module is known.')
_TENSOR_PARALLELISM = Column("parallelism", "str", "", "Of the group: tp, ep or cp.")
_TENSOR_PHASE = Column("phase", "str?", "", "forward, backward or optimizer, by its launch.")
TENSOR = Table(
    "tensor",
    (
        _RANK,
        _TENSOR_MODULE,
        _TENSOR_PARALLELISM,
        _TENSOR_PHASE,
        Column("kind", "str", "", "all_reduce, all_gather, reduce_scatter, all_to_all, ..."),
        Column("count", "int", "", "Collectives launched in complete steps."),
        Column("size_bytes", "int?", "bytes", "Sum of the full arrays; null when one is unknown."),
        Column("exposed_ns", "int", "ns", "Time that no compute covers. Rows may overlap."),
    ),
)
TENSOR_BY_MODULE = Table(
    "tensor_by_module",
    (
        _TENSOR_MODULE,
        _TENSOR_PARALLELISM,
        _TENSOR_PHASE,
        Column("kind", "str", "", "all_reduce, all_gather, ..."),
        Column("ranks", "int", "", "Ranks that take part; the means are over them and their complete steps."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("exposed_ns", "float", "ns", "Mean time a step that no compute covers."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
)
POINT_TO_POINT = Table(
    "point_to_point",
    (
        Column("source", "int", "", "Global rank that sends."),
        Column("destination", "int", "", "Global rank that receives."),
        Column("group", "int?", "", "Id in `groups`; null for a group destroyed since."),
        Column("sends", "int", "", "Sends that the source recorded."),
        Column("receives", "int", "", "Receives that the destination recorded."),
        Column("joined", "int", "", "Sends joined to their receive."),
        Column("size_bytes", "int?", "bytes", "Sum over the sends, or the receives where these are not recorded."),
    ),
)
PIPELINE_STAGES = Table(
    "pipeline_stages",
    (
        Column("stage", "int", "", "Number of the stage, from 0."),
        Column("kind", "str", "", "F forward, B backward, I its input gradient and W its weight gradient, if split."),
        Column("count", "int", "", "Actions in the steps that all ranks completed."),
        Column("mean_ns", "int", "ns", "Mean time of one, without waiting for a receive."),
    ),
)
PIPELINE_RANKS = Table(
    "pipeline_ranks",
    (
        _RANK,
        Column("stages", "list", "", "Its stages."),
        Column("busy_ns", "int", "ns", "Time covered by its actions in the steps that all ranks completed."),
        Column("bubble_ns", "int?", "ns", "The rest of the time from the pipeline's first to its last action."),
        Column("bubble_ratio", "float?", "ratio", "bubble over that time; null where ranks or clocks are missing."),
    ),
)
_CALLEE = Column("callee", "str", "", "Name of the worker that is called.")
RPC = Table(
    "rpc",
    (
        _RANK,
        Column("worker", "str", "", "Its name as a worker of RPC."),
        _CALLEE,
        Column("callee_rank", "int?", "", "Its rank; null when it has no recording."),
        Column("function", "str", "", "Function or method, or builtin operator; to_here: the fetch of a remote value."),
        Column("calls", "int", "", "Calls issued in complete steps."),
        Column("joined", "int", "", "Those joined to their service at the callee."),
        Column("wait_ns", "int", "ns", "The training thread waits for one, or for several futures of them."),
        Column("completed", "int", "", "Joined calls that were seen to complete, which the following times are of."),
        Column("round_trip_ns", "int?", "ns", "Sum from issue to completion, on the caller's clock."),
        Column("service_ns", "int?", "ns", "Sum of the time in the function, on the callee's clock."),
        Column("transit_ns", "int?", "ns", "The rest of the round trips: transit, queueing, packing."),
    ),
)
RPC_BY_FUNCTION = Table(
    "rpc_by_function",
    (
        _CALLEE,
        Column("function", "str", "", "Function or method, or builtin operator."),
        Column("ranks", "int", "", "Ranks that call it; the means are over them and their complete steps."),
        Column("calls", "float", "", "Mean number a step."),
        Column("wait_ns", "float", "ns", "Mean time a step in which the training thread waits for one."),
        Column("round_trip_ns", "float?", "ns", "Mean of a joined call from issue to completion."),
        Column("service_ns", "float?", "ns", "Mean time of it in the function at the callee."),
        Column("transit_ns", "float?", "ns", "The rest of it: transit, queueing, packing."),
        Column("worst_rank", "int", "", "The rank with the longest wait."),
        Column("worst_wait_ns", "float", "ns", "Its wait a step."),
    ),
)
RPC_UNJOINED = Table(
    "rpc_unjoined",
    (
        _RANK,
        _CALLEE,
        Column("reason", "str", "", "Why no service was found."),
        Column("count", "int", "", "Calls issued in complete steps."),
    ),
)
STRAGGLERS = Table(
    "stragglers",
    (
        _RANK,
        Column("caused_delay_ns", "int", "ns", "Mean a step by which it held up others; what it passed on is not its."),
        Column("wait_ns", "int", "ns", "Mean time a step from its arrivals at collectives to the last one's."),
        Column("last_arrivals", "int", "", "Collectives to which it came last, by more than the clocks' uncertainty."),
        Column("arrivals", "int", "", "Collectives that were matched over ranks."),
        Column("cause", "str?", "", "What most of it is due to: compute, more_work, host or data; null: nothing."),
    ),
)
CRITICAL_PATH = Table(
    "critical_path",
    (
        _RANK,
        Column("kind", "str", "", "compute, data, host (between operations) or communication."),
        Column("name", "str", "", "Operation and group; of the others, what they led to."),
        Column("total_ns", "int", "ns", "Time on the chain that bounds the steps, over the counted steps."),
        Column("share", "float", "ratio", "Of the chain."),
    ),
)
TABLES: tuple[Table, ...] = (
    RANKS,
    STEPS,
    COMMUNICATION,
    COMMUNICATION_BY_KIND,
    CLOCK,
    COLLECTIVES,
    BUCKET_MAP,
    FSDP,
    FSDP_BY_MODULE,
    TENSOR,
    TENSOR_BY_MODULE,
    PHASES,
    PHASES_BY_PHASE,
    PHASE_FACTS,
    MEMORY,
    POINT_TO_POINT,
    PIPELINE_STAGES,
    PIPELINE_RANKS,
    RPC,
    RPC_BY_FUNCTION,
    RPC_UNJOINED,
    STRAGGLERS,
    CRITICAL_PATH,
)
