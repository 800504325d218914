"""What the HTML report's script reads: the JSON result, and beside it what only the page draws.

The page has one data block, `<script type="application/json" id="tracekit-data">`, with a `PageData` object. Its
`result` is what `tracekit analyze --json` prints; docs/json describes that. `page` has what the JSON result lacks.

Rules that hold everywhere:

* Times are nanoseconds, sizes bytes, bandwidths bytes per second, ratios fractions of 1. Names end in the unit.
* Null is unknown or not significant, never 0.
* A matrix is one flat list, row by row: the value of row r and column c stands at `r * columns + c`.
* Control and format characters are escaped in every text, and a text has at most `MOST_CHARACTERS` characters. A text
  may still hold markup: the script sets it as `textContent` and never as HTML.
* Ranks are global rank numbers, steps the recorded numbers. Group ids are indices into `result.groups`.
* Where the file would be too large, the matrices, lanes and message pairs are binned more coarsely, and long tables of
  `result` are cut. `page.cuts` says each of these in a sentence for the reader.

What the charts draw is in `chart_contract`.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from tracekit.render.page.chart_contract import (
    Bandwidth,
    FsdpLadder,
    LaneView,
    MessagePairs,
    PictureView,
    PipelineView,
    RankMap,
    RankSteps,
    Skew,
)

CONTRACT_VERSION = 3
DATA_ID = "tracekit-data"
"""The id of the data block's element."""

MOST_CHARACTERS = 400
"""Of one text. What is longer ends in an ellipsis."""

MOST_IN_COMMAND = 10_000
"""Of a command, and of Markdown that holds one."""


class Header(TypedDict):
    """The first lines of the page.

    Attributes:
        title: The name of the run: of its folder, with the attempt if it has several.
        facts: Ranks, devices, parallelism; steps and their length; where the run is, with its id.
        rank_count: Ranks that were found, with those that only serve others.
        missing: Ranks that were not found, as "3, 5-7"; null: none is missing.
        unmeasured: Ranks without usable device records, in the same form; null: none.
        step_count: Steps that all ranks completed; tables over ranks are over these.
        steps: Their numbers, as "3-12"; null without any.
        step_ns: The median of the job's steps; null without any, and where ranks keep different paces.
        clock_text: By how much times of two ranks may be off each other, as a sentence.
        overhead_text: What recording cost, as a sentence; null: not measured.
    """

    title: str
    facts: list[str]
    rank_count: int
    missing: str | None
    unmeasured: str | None
    step_count: int
    steps: str | None
    step_ns: int | None
    clock_text: str
    overhead_text: str | None


class FindingView(TypedDict):
    """What the page adds to one finding; `page.findings[i]` is of `result.findings[i]`.

    Attributes:
        text: The finding as the terminal prints it: what is the case, what it saves, how sure that is, what to do.
        saving_share: Its saving by the mean step; null without a saving.
        saving_share_text: The same as it is printed, with a word if waiting ends as well; null likewise.
        ranks: Ranks that "show evidence" filters by: whom it is about, who waits longest, a typical one; empty: all.
        steps: Steps that it filters by; empty: all steps.
        groups: Ids of the process groups that its evidence names, by id or by name; empty: none.
        kind: The kind of communication that it names; null: none.
        phase: The phase that it names; null: none.
        section: The part of the page with its tables: one of `SECTIONS` in the analysis, such as "stragglers"; null.
        open_command: The command that shows these ranks and steps in Perfetto.
        explain_command: The command that says what the finding means, and how it was decided in this run.
        markdown: The finding for a pull request.
    """

    text: str
    saving_share: float | None
    saving_share_text: str | None
    ranks: list[int]
    steps: list[int]
    groups: list[int]
    kind: str | None
    phase: str | None
    section: str | None
    open_command: str
    explain_command: str
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


class WaterfallRow(TypedDict):
    """One bar of the what-if waterfall, from `from_ns` to `to_ns` on an axis of time per step.

    Attributes:
        kind: "measured" and "replayed" reach from 0 to the step. "change": a replay with this change alone; it reaches
            from the replayed step down to the step with the change. Savings overlap and do not add up. "ideal": all
            ranks and steps alike.
        error_ns: Uncertainty of the saving; null for rows that are no change.
    """

    kind: Literal["measured", "replayed", "change", "ideal"]
    label: str
    from_ns: int
    to_ns: int
    saving_ns: int | None
    error_ns: int | None
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
    waterfall: list[WaterfallRow]
    waterfall_reason: str | None


class Cut(TypedDict):
    """What is shown more coarsely, or not in full.

    Attributes:
        what: The table, by its name in `result` ("phases.parts" is in an object), or what else it is.
        text: A sentence for the reader, with the remedy.
        total: Rows or cells that there are.
        kept: Those in this file.
        ranks: Ranks of whose rows some are left; null where rows are not by rank.
    """

    what: str
    text: str
    total: int
    kept: int
    ranks: list[int] | None


class ColumnText(TypedDict):
    """What a column of a table of `result` is."""

    name: str
    label: str
    unit: str
    meaning: str


class Definition(TypedDict):
    """A term of the page in one or two sentences."""

    term: str
    text: str


class Page(TypedDict):
    """What the page draws and the JSON result lacks.

    Kernels and operators are in `result.kernels` and `result.operators`: those with the most total, self and exposed
    time, 50 of each.

    Attributes:
        version: `CONTRACT_VERSION`.
        open_command: What shows the typical step in Perfetto; of many ranks those that matter.
        picture: Null where no rank completed a step.
        means: Means a step over all ranks, by the name of the table in `result` with the rows of each rank:
            "communication", "phases", "fsdp" and "tensor" are rows of the tables `communication_by_kind`,
            `phases_by_phase`, `fsdp_by_module` and `tensor_by_module`; "idle_causes" has `cause` and `total_ns`.
        communication_reason: Why `skew` and `bandwidth` are empty; null where they are not.
        pairs: Null where no rank sent messages.
        pipeline: Null where no rank recorded actions of a pipeline.
        fsdp_ladder: Null where no label of FSDP shows when the modules of all-gathers are used.
        lanes: The typical and the worst step; empty where `lanes_reason` says why.
        cuts: Empty where the page has everything.
        columns: By the name of a table in `result`; label, unit and meaning of each column.
    """

    version: int
    header: Header
    open_command: str
    findings: list[FindingView]
    picture: PictureView | None
    step: StepView
    rank_map: RankMap
    rank_steps: RankSteps
    means: dict[str, list[dict[str, Any]]]
    skew: list[Skew]
    bandwidth: list[Bandwidth]
    communication_reason: str | None
    pairs: MessagePairs | None
    pipeline: PipelineView | None
    fsdp_ladder: FsdpLadder | None
    lanes: list[LaneView]
    lanes_reason: str | None
    cuts: list[Cut]
    columns: dict[str, list[ColumnText]]
    definitions: list[Definition]


class PageData(TypedDict):
    """The object in the page's data block.

    Attributes:
        result: The JSON result of `tracekit analyze`. Read ranks and steps from `page.rank_steps`: `result.steps`
            may be cut.
    """

    result: dict[str, Any]
    page: Page
