"""Pictures of a step in characters, with tables beside them: DDP's buckets against backward, a pipeline's actions."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

from tracekit.explain.ddp.buckets import BucketPicture, Buckets
from tracekit.explain.ddp.tables import BUCKETS_SHOWN
from tracekit.explain.pipeline import tables
from tracekit.explain.pipeline.bubbles import Pipeline
from tracekit.model.spans import ACTION_NAMES
from tracekit.model.table import rows_of
from tracekit.model.texts import count_text, milliseconds, percent, safe_text, shortened
from tracekit.render.console import draw, statement, table
from tracekit.render.grid import grid_of

if TYPE_CHECKING:
    from rich.text import Text


_MOST_BARS = 9
_LONGEST_NAME = 13
_COLUMNS = 54
_BESIDE_BARS = 22  # name and time
_QUEUED, _HIDDEN, _AFTER = "·", "▒", "█"
_SHOWN_STAGES = 16
_SHOWN_RANKS = 16
_DRAWN_RANKS = 16
_FILLED = 0.2  # of the bubbles: the first and the last recorded step have one neighbour each
_IDLE = "·"
_SIGNS = {"F": string.digits, "B": string.ascii_lowercase, "I": string.ascii_lowercase, "W": string.ascii_uppercase}
_STYLES = {"F": "blue", "B": "green", "I": "green", "W": "cyan"}


# ---- DDP's buckets -----------------------------------------------------------------------------------------------


def bucket_blocks(buckets: Buckets, width: int) -> list[object]:
    """Return the table of buckets, a picture of a typical backward pass, and why other sizes were not tried."""
    if not rows_of(buckets, "bucket_map"):
        return []
    blocks = _bucket_table(buckets)
    if buckets.picture is not None:
        blocks += bucket_chart(buckets.picture, width)
    missing = buckets.whatif_unavailable
    if missing is not None and not missing.expected:
        blocks += [statement("info", f"other bucket sizes n/a: {missing.reason}"), ""]
    return blocks


def _bucket_table(buckets: Buckets) -> list[object]:
    """Return a row for each bucket, with times where reductions were recorded."""
    rows = rows_of(buckets, "bucket_map")
    times = {(row["module"], row["index"]): row for row in rows_of(buckets, "by_index")}
    if used := {module for module, _ in times}:
        rows = [row for row in rows if row["module"] in used]  # other modules did not reduce in these steps
    one_module = {"module": None} if len({row["module"] for row in rows}) == 1 else {}
    unknown = dict.fromkeys(column.name for column in BUCKETS_SHOWN.columns)
    more = f"; in the last of {buckets.micro_batches} micro-batches" * ((buckets.micro_batches or 1) > 1)
    more += "; inferred from the order and sizes of all-reduces" * rows[0]["inferred"]
    shown = []
    for row in rows:
        names = row["parameters"] or ()
        first = shortened(names[0], _LONGEST_NAME, keep="end") if names else None
        beside = {"first": first, "params": len(names) or None, "more": more}
        shown.append(unknown | times.get((row["module"], row["index"]), {}) | row | beside | one_module)
    return draw(grid_of(BUCKETS_SHOWN, shown))


def bucket_chart(picture: BucketPicture, width: int) -> list[object]:
    """Return bars of the reductions of one backward pass, at most `width` characters wide.

    Of many, the first two and the last ones are shown: at the end of the pass nothing covers them.
    """
    from rich.text import Text

    bars, columns = picture.bars, min(_COLUMNS, width - _BESIDE_BARS)
    begin_ns, end_ns = bars[0].ready_ns, max(bar.end_ns for bar in bars)
    begin_ns -= (end_ns - begin_ns) // 8  # the first bucket's gradients came before it was ready
    scale = columns / max(end_ns - begin_ns, 1)

    def column(time_ns: int) -> int:
        return min(max(round((time_ns - begin_ns) * scale), 0), columns)

    gradients = "─" * max(column(picture.last_gradient_ns) - 1, 0) + "┤"
    lines = [f"{'gradients':<11}{gradients:<{columns}}  uncovered"]
    shown = bars if len(bars) <= _MOST_BARS else (*bars[:2], *bars[2 - _MOST_BARS :])
    several = len({bar.module for bar in bars}) > 1
    for index, bar in enumerate(shown):
        if index == 2 and len(shown) < len(bars):
            lines.append(f"{'...':<11}{len(bars) - len(shown)} more")
        name = f"{bar.module[:7]} {bar.index}" if several else f"bucket {bar.index}"
        drawn = _bar(column(bar.ready_ns), column(bar.start_ns), column(bar.end_ns), column(picture.last_gradient_ns))
        lines.append(f"{name:<11}{drawn:<{columns}} {milliseconds(bar.uncovered_ns):>8}")
    title = (
        f"Buckets against backward: rank {picture.rank}, step {picture.step}, a typical one; "
        f"{milliseconds(end_ns - begin_ns)} ms across"
    )
    legend = f"{_QUEUED} queued  {_HIDDEN} on its way during backward  {_AFTER} after the last gradient; times in ms"
    return [Text(title, style="bold"), "", *(Text(safe_text(line), no_wrap=True) for line in lines), Text(legend), ""]


def _bar(ready: int, start: int, end: int, last_gradient: int) -> str:
    end = max(end, start + 1)
    hidden = max(min(end, last_gradient) - start, 0)
    return " " * ready + _QUEUED * (start - ready) + _HIDDEN * hidden + _AFTER * (end - start - hidden)


# ---- pipelines ---------------------------------------------------------------------------------------------------


def pipeline_blocks(pipeline: Pipeline, width: int) -> list[object]:
    """Return the stages, the bubbles, and a picture of a typical step."""
    picture = pipeline_grid(rows_of(pipeline, "typical_step"), width, filled=_is_filled(pipeline))
    return [*pipeline_table(pipeline), *bubble_table(pipeline), *picture]


def pipeline_table(pipeline: Pipeline) -> list[object]:
    """Return stages by kind of action: how many a step, and how long one takes."""
    stages = rows_of(pipeline, "by_stage")
    kinds = [kind for kind in ACTION_NAMES if any(row["kind"] == kind for row in stages)]
    cells = {(row["stage"], row["kind"]): row for row in stages}
    numbers = sorted({row["stage"] for row in stages})
    ranks: dict[int, list[str]] = {}
    for rank in rows_of(pipeline, "by_rank"):
        for stage in rank["stages"]:
            ranks.setdefault(stage, []).append(str(rank["rank"]))
    runs = max(pipeline.steps * pipeline.pipelines, 1)
    rows = [
        (
            str(stage),
            _several(ranks.get(stage, [])),
            *(
                f"{row['count'] / runs:.3g} x {milliseconds(row['mean_ns'])}" if row is not None else "n/a"
                for row in (cells.get((stage, kind)) for kind in kinds)
            ),
        )
        for stage in numbers[:_SHOWN_STAGES]
    ]
    microbatches = count_text(pipeline.microbatches, "microbatch", "microbatches")
    title = f"Pipeline ({pipeline.schedule}, {microbatches}): actions a step x mean ms"
    if len(numbers) > _SHOWN_STAGES:
        title += f"; the first {_SHOWN_STAGES} of {len(numbers)} stages, --json has all"
    return table(title, ("stage", "rank", *(ACTION_NAMES[kind] for kind in kinds)), rows, left=2)


def bubble_table(pipeline: Pipeline) -> list[object]:
    """Return bubbles by rank and cause; nothing where bubbles are not known."""
    if pipeline.bubble_ratio is None or pipeline.causes_ns is None:
        return []
    more = ""
    if pipeline.ideal_bubble_ratio is not None:
        more += f", the least for this order is {pipeline.ideal_bubble_ratio:.0%}"
    of_all = {"steps": pipeline.steps, "of_time": percent(pipeline.bubble_ratio), "more": more}
    rows = [row | of_all for row in rows_of(pipeline, "by_rank")]
    most = sorted(rows, key=lambda row: -row["bubble_ns"])[:_SHOWN_RANKS]
    shown = sorted(most, key=lambda row: row["rank"])
    return draw(grid_of(tables.PIPELINE_RANKS, shown, total=len(rows)))


def _several(ranks: list[str]) -> str:
    return ", ".join(ranks) if len(ranks) <= 4 else f"{', '.join(ranks[:3])}, ..."


def _is_filled(pipeline: Pipeline) -> bool:
    return pipeline.filled_ratio is not None and pipeline.filled_ratio >= _FILLED


def pipeline_grid(actions: list[dict[str, Any]], width: int, *, filled: bool = False) -> list[object]:
    """Return a picture of one step, `width` characters wide; nothing without actions.

    `actions`: rows of the table PIPELINE_ACTIONS. `filled`: ranks run other steps in between.
    """
    from rich.text import Text

    if not actions:
        return []
    ranks = list(dict.fromkeys(row["rank"] for row in actions))
    begin_ns = min(row["start_ns"] for row in actions)
    span_ns = max(row["end_ns"] for row in actions) - begin_ns
    label = len(f"rank {max(ranks)}") + 2
    cells = max(min(width - label, 120), 10)
    numbered = any(row["microbatch"] > 9 for row in actions)
    title = f"Step {actions[0]['step']} of the pipeline, {milliseconds(span_ns)} ms: microbatches forward 0 1 2, "
    title += "backward a b c" + (", weight gradients A B C" if any(row["kind"] == "W" for row in actions) else "")
    title += f", {'idle or in other steps' if filled else 'idle'} {_IDLE}" + (
        "; they repeat after 9 and z" if numbered else ""
    )
    lines: list[object] = [Text(title, style="bold")]
    for rank in ranks[:_DRAWN_RANKS]:
        of_rank = [row for row in actions if row["rank"] == rank]
        lines.append(
            Text.assemble(f"rank {rank}".ljust(label), _actions(of_rank, begin_ns, span_ns, cells), no_wrap=True)
        )
    if len(ranks) > _DRAWN_RANKS:
        lines.append(Text(f"{len(ranks) - _DRAWN_RANKS} more ranks; --json --actions has all"))
    return [*lines, Text("")]


def _actions(actions: list[dict[str, Any]], begin_ns: int, span_ns: int, cells: int) -> Text:
    """Return for each cell the action that covers most of it, if it covers half."""
    from rich.text import Text

    taken_ns = [0] * cells
    signs = [_IDLE] * cells
    styles = ["dim"] * cells
    for row in actions:
        start_ns, end_ns = row["start_ns"] - begin_ns, row["end_ns"] - begin_ns
        series = _SIGNS[row["kind"]]
        for cell in range(start_ns * cells // span_ns, min(end_ns * cells // span_ns + 1, cells)):
            edge_ns = cell * span_ns // cells, (cell + 1) * span_ns // cells
            covered_ns = min(end_ns, edge_ns[1]) - max(start_ns, edge_ns[0])
            if covered_ns > max(taken_ns[cell], (edge_ns[1] - edge_ns[0]) // 2):
                taken_ns[cell] = covered_ns
                signs[cell], styles[cell] = series[row["microbatch"] % len(series)], _STYLES[row["kind"]]
    return Text.assemble(*zip(signs, styles, strict=True))
