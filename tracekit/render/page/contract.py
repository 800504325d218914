"""What the HTML report's script reads: the JSON result, and beside it what only the page draws.

The page has one data block, `<script type="application/json" id="tracekit-data">`, with a `PageData` object. Its
`result` is what `tracekit analyze --json` prints; docs/json describes that. `page` has what the JSON result lacks.

Rules that hold everywhere:

* Times are nanoseconds, sizes bytes, bandwidths bytes per second, ratios fractions of 1. Names end in the unit.
* Null is unknown or not significant, never 0.
* A matrix is one flat list, row by row: the value of row r and column c stands at `r * columns + c`.
* Control and format characters are escaped in every text, and a text has at most `MOST_CHARACTERS` characters. A text may
  still hold markup: the script sets it as `textContent` and never as HTML.
* Ranks are global rank numbers, steps the recorded numbers. Group ids are places in `result.groups`.
* Where the file would be too large, the matrices, lanes and message pairs are binned more coarsely, and long tables of
  `result` are cut. `page.cuts` says each of these in a sentence for the reader.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = [
    "CONTRACT_VERSION",
    "DATA_ID",
    "MOST_CHARACTERS",
    "Bandwidth",
    "Bar",
    "ColumnText",
    "Cut",
    "Definition",
    "FindingView",
    "Header",
    "LaneRank",
    "LaneSpans",
    "LaneView",
    "MapDimension",
    "MapMetric",
    "MessagePairs",
    "Page",
    "PageData",
    "RankMap",
    "RankStepMetric",
    "RankSteps",
    "Skew",
    "StepCause",
    "StepView",
    "WaterfallRow",
]

CONTRACT_VERSION = 1
DATA_ID = "tracekit-data"
"""The id of the data block's element."""

MOST_CHARACTERS = 400
"""Of one text. What is longer ends in an ellipsis."""


class Header(TypedDict):
    """The first lines of the page.

    Attributes:
        title: What ran, as the terminal's headline says it.
        rank_count: Ranks that were found and measured.
        missing: Ranks that were not found, as "3, 5-7"; null: none is missing.
        unmeasured: Ranks without usable device records, in the same form; null: none.
        step_count: Steps that all ranks completed; tables over ranks are over these.
        steps: Their numbers, as "3-12"; null without any.
        clock_error_ns: By how much times of two ranks may be off each other; null where clocks cannot be compared.
        clock_text: The same as a sentence.
        overhead_ns: What recording cost a step; null: not measured.
        overhead_ratio: The same as a share of the step.
        overhead_text: The same as a sentence; null: not measured.
    """

    title: str
    rank_count: int
    missing: str | None
    unmeasured: str | None
    step_count: int
    steps: str | None
    clock_error_ns: int | None
    clock_text: str
    overhead_ns: int | None
    overhead_ratio: float | None
    overhead_text: str | None


class FindingView(TypedDict):
    """What the page adds to one finding; `page.findings[i]` is of `result.findings[i]`.

    Attributes:
        text: The finding as the terminal prints it: what is the case, what it saves, how sure that is, what to do.
        saving_share: Its saving by the mean step; null without a saving.
        ranks: Ranks that "show evidence" filters by; empty: all ranks.
        steps: Steps that it filters by; empty: all steps.
        section: The part of the page with its tables: one of `SECTIONS` in the analysis, such as "stragglers"; null.
        open_command: The command that shows these ranks and steps in Perfetto.
        markdown: The finding for a pull request.
    """

    text: str
    saving_share: float | None
    ranks: list[int]
    steps: list[int]
    section: str | None
    open_command: str
    markdown: str


class StepCause(TypedDict):
    """One part of the mean step along the longest chain over all ranks; `time_ns` of all rows sum to `step_ns`.

    Attributes:
        label: What the time goes to.
        where: Ranks, group, module, phase; "" where nothing is known.
        part: What it counts as, for its colour and pattern. "delay": a rank or link that holds others up.
        time_ns: Per step.
        share: Of the step.
        ranks: Ranks that it names; empty: none.
    """

    label: str
    where: str
    part: Literal["compute", "communication", "delay", "bubble", "idle", "other"]
    time_ns: int
    share: float
    ranks: list[int]


class Bar(TypedDict):
    """The mean step of one rank; the four parts sum to `step_ns`, up to rounding.

    Attributes:
        role: Why it is shown. By the length of the step without waiting (exposed communication): where ranks meet in
            every step, all steps are as long.
        idle_by_cause: The causes sum to `idle_ns`; a key is a cause of `result.idle_causes`.
    """

    role: Literal["slowest", "median", "fastest"]
    rank: int
    steps: int
    step_ns: float
    compute_ns: float
    exposed_comm_ns: float
    exposed_copy_ns: float
    idle_ns: float
    idle_by_cause: dict[str, float]


class WaterfallRow(TypedDict):
    """One bar of the what-if waterfall, from `from_ns` to `to_ns` on an axis of time per step.

    Attributes:
        kind: "measured" and "replayed" reach from 0 to the step. "change": a replay with this change alone; it reaches
            from the replayed step down to the step with the change. Savings overlap and do not add up. "ideal": all ranks
            and steps alike.
        error_ns: Uncertainty of the saving; null for rows that are no change.
        remedy: As in `result.whatif.fix`; null for rows that are no change.
    """

    kind: Literal["measured", "replayed", "change", "ideal"]
    label: str
    from_ns: int
    to_ns: int
    saving_ns: int | None
    error_ns: int | None
    remedy: str | None
    ranks: list[int]


class StepView(TypedDict):
    """The section on the step.

    Attributes:
        step_ns: The mean step that `causes` sum to; null without a diagnosis, and `reason` says why.
        waterfall: Empty without a replay, and `waterfall_reason` says why.
    """

    step_ns: int | None
    reason: str | None
    causes: list[StepCause]
    bars: list[Bar]
    waterfall: list[WaterfallRow]
    waterfall_reason: str | None


class MapDimension(TypedDict):
    """One dimension of the rank map. `place`: where the page should lay it out: outer rows, outer columns, or inside."""

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
        hosts: Names of hosts; `host[i]` is a place in it, or null.
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
    `steps[column_first[c]]` to `steps[column_last[c]]`, ends included. Unbinned, these are the same place twice. Binned,
    a value is the maximum of its ranks and steps; it may then be of another rank than the value beside it.

    Attributes:
        binned: Whether a cell holds more than one rank or step; `text` then says how many.
        ranks: int [n], ascending.
        steps: int [m], ascending; every step that any rank completed.
        hosts: For each rank a place in `rank_map.hosts`, or null.
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
    """How far apart the ranks arrive at one kind and size of collective of one group: row `row` of `result.collectives`.

    Attributes:
        row: Place in `result.collectives`.
        quantiles_ns: int [7]: minimum, 5 %, 25 %, median, 75 %, 95 %, maximum of the skews of its instances.
        edges_ns: int [k + 1], bounds of the histogram's bins; on a logarithmic scale but for the first, which is 0.
        counts: int [k], instances in each bin; the last one includes its upper bound.
        error_ns: Uncertainty of a skew; what is below it is not significant. Null: clocks that cannot be compared.
    """

    row: int
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
        ceiling_bps: What the link does when idle, for this kind and size, as bus bandwidth; null: not known.
        ceiling_source: "measured": by `tracekit links`. "NVLink": the least that two GPUs joined by NVLink reach, as known
            of their generation. Null: not known.
    """

    row: int
    size_bytes: int
    busbw_bps: float
    low_bps: float
    high_bps: float
    ceiling_bps: float | None
    ceiling_source: Literal["measured", "NVLink"] | None


class MessagePairs(TypedDict):
    """Messages by sender and receiver, as k columns of equal length.

    Only pairs that exchanged messages are listed. Binned, `source` and `destination` are the lowest rank of
    `ranks_per_cell` consecutive ones.

    Attributes:
        count: Messages that were matched on both sides.
        size_bytes: Of all messages that the sender recorded; null: unknown.
        transfer_ns: Sum of the times from when both sides were ready; null: not known.
        mean_bps: size_bytes of the matched messages by transfer_ns; null likewise.
    """

    ranks_per_cell: int
    source: list[int]
    destination: list[int]
    count: list[int]
    size_bytes: list[int | None]
    transfer_ns: list[int | None]
    mean_bps: list[float | None]


class LaneSpans(TypedDict):
    """The longest operations of one rank in one step: k columns. Times are since the start of the view.

    Attributes:
        lane: Place in `LaneView.lanes`.
        name: Place in `LaneView.names`.
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
        phases: [start_ns, end_ns, place in `LaneView.names`] of forward, backward and so on.
        waits: [start_ns, end_ns, rank waited for or null] in collectives and for messages; the longest only.
        spans: The longest operations.
    """

    rank: int
    reason: Literal["blamed", "critical", "median", "lowest"]
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
        names: Texts that spans and phases refer to.
    """

    kind: Literal["typical", "worst"]
    step: int
    length_ns: int
    bins: int
    lanes: list[Literal["compute", "communication", "copy"]]
    names: list[str]
    ranks: list[LaneRank]


class Cut(TypedDict):
    """What is shown more coarsely, or not in full. `text` is a sentence for the reader, with the remedy."""

    what: str
    text: str
    total: int
    kept: int


class ColumnText(TypedDict):
    """What a column of a table of `result` is."""

    name: str
    unit: str
    meaning: str


class Definition(TypedDict):
    """A term of the page in one or two sentences."""

    term: str
    text: str


class Page(TypedDict):
    """What the page draws and the JSON result lacks.

    Kernels and operators are in `result.kernels` and `result.operators`, the top 50 by total, self and exposed time each.

    Attributes:
        version: `CONTRACT_VERSION`.
        communication_reason: Why `skew` and `bandwidth` are empty; null where they are not.
        pairs: Null where no rank sent messages.
        lanes: The typical and the worst step; empty where `lanes_reason` says why.
        cuts: Empty where the page has everything.
        columns: By the name of a table in `result`; unit and meaning of each column.
    """

    version: int
    header: Header
    findings: list[FindingView]
    step: StepView
    rank_map: RankMap
    rank_steps: RankSteps
    skew: list[Skew]
    bandwidth: list[Bandwidth]
    communication_reason: str | None
    pairs: MessagePairs | None
    lanes: list[LaneView]
    lanes_reason: str | None
    cuts: list[Cut]
    columns: dict[str, list[ColumnText]]
    definitions: list[Definition]


class PageData(TypedDict):
    """The object in the page's data block.

    Attributes:
        result: The JSON result of `tracekit analyze`. Read ranks and steps from `page.rank_steps`: `result.steps` may be
            cut.
    """

    result: dict[str, Any]
    page: Page
