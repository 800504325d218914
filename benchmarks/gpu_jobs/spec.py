"""What a simulated job is: its parallelism, its sizes, what is wrong with it, and how it is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from benchmarks.gpu_jobs.clocks import Clocks

Family = Literal["ddp", "fsdp", "tensor", "pipeline", "expert", "hybrid"]
"""`tensor` is TP x DP, `expert` is EP x DP, `hybrid` is PP x DP x TP."""

Cause = Literal[
    "compute",  # kernels of one rank take longer
    "more_work",  # one rank launches more kernels
    "host",  # the host of one rank waits for its device and is busy, as with `.item()` and a garbage collection
    "data",  # one rank waits for its data loader
    "link",  # the collectives of one group take longer
    "slow_host",  # kernels of all ranks of one machine take longer
    "hot_expert",  # the experts of one rank get tokens that others lack: it computes longer, its exchanges are larger
    "uneven_stage",  # kernels of all ranks of one stage of a pipeline take longer: its layers are larger
    "slow_edge",  # messages between two neighbouring stages take longer, in both directions
]


@dataclass(frozen=True, kw_only=True)
class Defect:
    """What is wrong with a job.

    Attributes:
        ranks: whom it concerns, ascending. The slow rank; the ranks of the slow machine; the members of the slow group;
            the ranks of the uneven stage; the rank that has the hot expert; the two ranks of the slow edge.
        stage: the uneven one, which is one of several of a rank in an interleaved schedule.
        delay_us: what it adds to a step of each slow rank. For a link or an edge, what it adds to the transfers of a
            step, in sum. For a hot expert, the time of computing the additional tokens, forward and backward.
    """

    cause: Cause
    ranks: tuple[int, ...]
    delay_us: float
    stage: int | None = None


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the profiler lost.

    Attributes:
        ranks: whose files lack it.
        kernels_after: the share of the recording after which there are no device records; 0 loses all of them.
        receives: the share of the records of receives (operator, launch and kernel) that are lost.
        files: the files of `ranks` are missing altogether.
    """

    ranks: tuple[int, ...] = ()
    kernels_after: float | None = None
    receives: float = 0.0
    files: bool = False


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job. Rank = (pp_index * dp + dp_index) * tp + tp_index; an expert group is `ep` neighbours within dp.

    Attributes:
        layers: of the whole model; of each stage in a pipeline there are layers / (pp * virtual_stages).
        microbatches: a step; 1 except in a pipeline.
        layer_us: time of a layer's forward pass for one microbatch on one rank. Backward takes twice as long.
        gradient_us: transfer time of all gradients of a rank over its dp group, in sum.
        exchange_us: transfer time of one collective in a layer (TP all-reduce, EP all-to-all, FSDP all-gather).
        message_us: transfer time of an activation between stages.
        buckets: of DDP.
        schedule: of the pipeline; `interleaved` takes `virtual_stages` of at least 2.
        batched_messages: of the pipeline: `batch_isend_irecv` instead of single `isend` and `irecv`.
        labels: names of actions. `action` is `PP:...` of a schedule with several stages a rank, `microbatch` is
            `Forward i` of a schedule with one (torch/distributed/pipelining/schedules.py).
        prefetch: units that FSDP gathers ahead on request; None: the host runs ahead and gathers early by itself;
            0: the host waits for each unit, so that each gather is exposed.
        dispatch: kernels that exchange tokens: NCCL all-to-all, or such as DeepEP's, without c10d arguments.
        dispatch_namespace: C++ namespace of such kernels.
        jitter: every duration is multiplied by a value drawn from 1 - jitter to 1 + jitter.
        synced: the host waits for its device at the end of each step, as `loss.item()` does; otherwise it runs ahead.
        launch_us: time of a host for each launch. With 0 launches, events and gaps take no time at all.
        blocking_on_compute_stream: synchronous collectives run on the current stream, as in torch 2.7 and later.
        sequence_numbers: collectives carry `Seq` and files name their host, as torch 2.13 records.
        clocks: of the machines; by default they are right.
    """

    family: Family
    dp: int = 1
    pp: int = 1
    tp: int = 1
    ep: int = 1
    ranks_per_host: int = 4
    layers: int = 8
    microbatches: int = 1
    steps: int = 5
    layer_us: float = 400.0
    gradient_us: float = 1000.0
    exchange_us: float = 100.0
    message_us: float = 30.0
    optimizer_us: float = 200.0
    buckets: int = 4
    schedule: Literal["gpipe", "1f1b", "interleaved"] = "1f1b"
    virtual_stages: int = 1
    batched_messages: bool = False
    labels: Literal["none", "microbatch", "action"] = "none"
    prefetch: int | None = None
    dispatch: Literal["all_to_all", "kernels"] = "all_to_all"
    dispatch_namespace: str = "deep_ep"
    jitter: float = 0.0
    synced: bool = False
    launch_us: float = 4.0
    blocking_on_compute_stream: bool = False
    sequence_numbers: bool = True
    seed: int = 0
    defect: Defect | None = None
    clocks: Clocks = field(default_factory=Clocks)
    missing: Missing | None = None

    def __post_init__(self) -> None:
        if self.family not in get_args(Family):
            raise ValueError(f"no family {self.family!r}")
        if self.layers % (self.pp * self.virtual_stages):
            raise ValueError("each stage has the same number of layers")
        if self.dp % self.ep:
            raise ValueError("expert groups divide dp")

    @property
    def ranks(self) -> int:
        return self.dp * self.pp * self.tp

    @property
    def layers_of_rank(self) -> int:
        return self.layers // self.pp

    @property
    def compute_us(self) -> float:
        """Return how long a healthy rank computes in a step, without its optimizer."""
        return 3 * self.layer_us * self.layers_of_rank * self.microbatches

    @property
    def hosts(self) -> int:
        return -(-self.ranks // self.ranks_per_host)

    def host_of(self, rank: int) -> int:
        return rank // self.ranks_per_host

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return the index of a rank in pp, dp and tp."""
        return rank // (self.dp * self.tp), rank // self.tp % self.dp, rank % self.tp

    def rank_at(self, pp: int, dp: int, tp: int) -> int:
        return (pp * self.dp + dp) * self.tp + tp
