"""What the charts of the HTML report draw: the rank map, the heat map, communication, and lanes.

The rules of `contract` hold here, too.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class MapDimension(TypedDict):
    """One dimension of the rank map.

    Attributes:
        place: Where the page should lay it out: along the rows, along the columns, or inside of a cell of these.
    """

    name: str
    size: int
    place: Literal["row", "column", "inside"]


class MapMetric(TypedDict):
    """One number per rank, which the page can colour the map by.

    Attributes:
        unit: "ns", "bytes", "ratio", "FLOP/s" or "".
        worse: Which end stands out; null: neither is worse.
        values: In the order of `RankMap.ranks`; null: not known.
    """

    key: str
    title: str
    unit: str
    meaning: str
    worse: Literal["high", "low"] | None
    values: list[float | int | None]


class RankMap(TypedDict):
    """All n ranks of the run, missing ones included, laid out by the mesh.

    Attributes:
        dimensions: Outermost first; the last varies fastest with the rank. Without a mesh, ("host", "rank") where hosts
            are known and have equally many ranks, else one dimension "rank".
        source: Where the layout is from: the mesh of the program, hosts, or the number of the rank alone.
        ranks: int [n], ascending.
        state: [n].
        coordinates: For each dimension int [n], null for a rank outside of the mesh.
        hosts: Names of hosts; `host[i]` is an index into it, or null.
        groups: For each rank the ids of its groups, in `result.groups`. The group of all ranks is not listed.
    """

    dimensions: list[MapDimension]
    source: Literal["mesh", "hosts", "ranks"]
    ranks: list[int]
    state: list[Literal["present", "missing", "unmeasured", "server"]]
    coordinates: list[list[int | None]]
    hosts: list[str]
    host: list[int | None]
    groups: list[list[int]]
    metrics: list[MapMetric]


class RankStepMetric(TypedDict):
    """One number per rank and step: a flat matrix of `len(row_first)` rows and `len(column_first)` columns."""

    key: Literal["step_ns", "lateness_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"]
    title: str
    meaning: str
    values: list[int | None]


class RankSteps(TypedDict):
    """The heat map of ranks and steps.

    Row r is of the measured ranks `ranks[row_first[r]]` to `ranks[row_last[r]]`, and column c of the steps
    `steps[column_first[c]]` to `steps[column_last[c]]`, ends included. Unbinned, these are the same column twice.
    Binned, a value is the maximum of its ranks and steps; it may then be of another rank than the value beside it.

    Attributes:
        binned: Whether a cell holds more than one rank or step; `text` then says how many.
        ranks: int [n], ascending.
        steps: int [m], ascending; every step that any rank completed.
        hosts: For each rank an index into `rank_map.hosts`, or null.
        metrics: A value is null where no rank of the cell completed the step, or lateness is not known.
    """

    binned: bool
    text: str | None
    ranks: list[int]
    steps: list[int]
    hosts: list[int | None]
    row_first: list[int]
    row_last: list[int]
    column_first: list[int]
    column_last: list[int]
    metrics: list[RankStepMetric]


class Skew(TypedDict):
    """How far apart the ranks of one group arrive at collectives of one kind and size.

    Attributes:
        row: Index into `result.collectives`.
        skew_ns, last_rank, step: int [n], of each instance; a rank is null within `error_ns`. Empty above MOST_DOTS.
        quantiles_ns: int [7]: minimum, 5 %, 25 %, median, 75 %, 95 %, maximum of the skews of its instances.
        edges_ns: int [k + 1], bounds of the histogram's bins; on a logarithmic scale but for the first, which is 0.
        counts: int [k], instances in each bin; the last one includes its upper bound. Both are empty unless skew_ns is.
        error_ns: Uncertainty of a skew; what is below it is not significant. Null: clocks that cannot be compared.
    """

    row: int
    skew_ns: list[int]
    last_rank: list[int | None]
    step: list[int]
    quantiles_ns: list[int]
    edges_ns: list[int]
    counts: list[int]
    error_ns: int | None


class Bandwidth(TypedDict):
    """One point of bandwidth against size: row `row` of `result.collectives`.

    Attributes:
        size_bytes: The full array.
        busbw_bps: By the median transfer time, as in `result.collectives`.
        low_bps: By the transfer time that 90 % of the instances stay below.
        high_bps: By the transfer time that 10 % of the instances stay below.
    """

    row: int
    size_bytes: int
    busbw_bps: float
    low_bps: float
    high_bps: float


class MessagePairs(TypedDict):
    """Messages by sender and receiver, as k columns of equal length.

    Only pairs that exchanged messages are listed. Binned, `source` and `destination` are the lowest rank of
    `ranks_per_cell` consecutive ones.

    Attributes:
        count: Messages that were matched on both sides.
        size_bytes: Of these messages; null: unknown.
        transfer_ns: Sum of the times from when both sides were ready; null: not known.
        mean_bps: Of the messages whose size and time are known; null likewise.
    """

    ranks_per_cell: int
    source: list[int]
    destination: list[int]
    count: list[int]
    size_bytes: list[int | None]
    transfer_ns: list[int | None]
    mean_bps: list[float | None]


class PicturePart(TypedDict):
    """What a rank does for some time of the picture: its name, colour as #rrggbb, and whether it is an outline."""

    name: str
    colour: str
    is_hollow: bool


class PictureLine(TypedDict):
    """One rank in the picture, or several that look the same.

    Attributes:
        alike: How many ranks that are not drawn look the same.
        stages: Of its pipeline; empty without one.
        segments: Start, end and index into `PictureView.parts`, in ns from the begin of the picture.
        step_ns: The length of its step, of which the four times below are parts.
    """

    rank: int
    alike: int
    stages: list[int]
    label: str
    segments: list[list[int]]
    step_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int


class PictureArrow(TypedDict):
    """The longest wait for a rank that is drawn, in ns from the begin of the picture, and what ends it."""

    waiting_rank: int
    late_rank: int
    start_ns: int
    end_ns: int
    text: str


class PictureView(TypedDict):
    """One typical step.

    Attributes:
        length_ns: From the first begin of a rank's step to the last end.
        begins: What is to know of where the rows begin, as a phrase; may be empty.
        ranks: How many the run has.
        rows: Stages of a pipeline in order, or the last to arrive first.
    """

    step: int
    length_ns: int
    begins: str
    ranks: int
    parts: list[PicturePart]
    rows: list[PictureLine]
    arrow: PictureArrow | None


class LaneSpans(TypedDict):
    """The longest operations of one rank in one step: k columns. Times are since the start of the view.

    Attributes:
        lane: Index into `LaneView.lanes`.
        name: Index into `LaneView.names`.
    """

    start_ns: list[int]
    end_ns: list[int]
    lane: list[int]
    name: list[int]


class LaneRank(TypedDict):
    """One rank in one step.

    Attributes:
        reason: Why it is shown.
        start_ns: Of the rank's window, since the start of the view, on the run's clock.
        end_ns: Its end.
        covered: For each of `LaneView.lanes` int [bins], per cent of the bin that the lane covers; 1 at least where it
            covers any of it.
        phases: [start_ns, end_ns, index into `LaneView.names`] of forward, backward and so on.
        waits: [start_ns, end_ns, rank waited for or null] in collectives and for messages; the longest only.
        spans: The longest operations.
    """

    rank: int
    reason: Literal["blamed", "waits", "critical", "median", "lowest"]
    start_ns: int
    end_ns: int
    covered: list[list[int]]
    phases: list[list[int]]
    waits: list[list[int | None]]
    spans: LaneSpans


class LaneView(TypedDict):
    """What at most 16 ranks did in one step.

    Attributes:
        kind: Which step it is: the one of median length, or the longest.
        length_ns: From the first start to the last end of its ranks.
        bins: Of equal length, over `length_ns`.
        lanes: Those in which anything runs.
        names: Texts that spans and phases refer to.
    """

    kind: Literal["typical", "worst"]
    step: int
    length_ns: int
    bins: int
    lanes: list[Literal["compute", "communication", "copy"]]
    names: list[str]
    ranks: list[LaneRank]


class PipelineGaps(TypedDict):
    """Bubbles of a step, k columns. Times are since the start of the view.

    Attributes:
        cause: The cause that adds most to it: warmup, drain, imbalance, transfer, late_peer or other.
    """

    rank: list[int]
    start_ns: list[int]
    end_ns: list[int]
    cause: list[str]


class PipelineView(TypedDict):
    """The actions of one pipeline in the step of median length, k columns. Times are since the start of the view.

    Attributes:
        ranks: In the order of their first stage.
        kind: F, B, I or W.
        start_ns: When the action's input was there: waiting for a receive is part of the bubble before it.
        gaps: Null where causes are not known.
        text: What is left out; null: nothing.
    """

    step: int
    length_ns: int
    ranks: list[int]
    rank: list[int]
    stage: list[int]
    microbatch: list[int]
    kind: list[str]
    start_ns: list[int]
    end_ns: list[int]
    gaps: PipelineGaps | None
    text: str | None


class FsdpLadder(TypedDict):
    """All-gathers of FSDP on one rank in one step, k columns in the order in which the modules are used.

    Attributes:
        module: "" for the outermost.
        phase: Of the use; null: unknown.
        ahead: Of how many modules compute was launched between the issue of the gather and its use; on a CPU rank how
            many modules came to use in between.
        transfer_ns: On the device; on a CPU rank, in Gloo.
        wait_ns: How long compute that was launched waited for it; on a CPU rank, how long nothing computed meanwhile.
        compute_before_ns: Compute of the module before it, under which it can hide; null for the first.
    """

    rank: int
    step: int
    module: list[str]
    phase: list[str | None]
    ahead: list[int]
    transfer_ns: list[int]
    wait_ns: list[int]
    compute_before_ns: list[int | None]
