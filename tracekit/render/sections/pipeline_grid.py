"""A pipeline's schedule as a picture in the terminal: a row a rank, time from left to right.

Comes in: the actions of one step of one pipeline. Goes out: renderables. A cell shows the microbatch that takes most of
its time: a digit for its forward, a letter for its backward, a capital for its weight gradient where that is apart.

    rank 0  0123...a4b5c6d7...efgh        1F1B with four ranks and eight microbatches
    rank 1  .012..a3b4c5d6e7..fgh.
"""

from __future__ import annotations

import string
from typing import Any

from rich.text import Text

from tracekit.render.quantities import milliseconds

__all__ = ["pipeline_grid"]

_MOST_RANKS = 16
_IDLE = "·"
_SIGNS = {"F": string.digits, "B": string.ascii_lowercase, "I": string.ascii_lowercase, "W": string.ascii_uppercase}
_STYLES = {"F": "blue", "B": "green", "I": "green", "W": "cyan"}


def pipeline_grid(actions: list[dict[str, Any]], width: int) -> list[object]:
    """`actions` of one step: rows of schema.PIPELINE_ACTIONS. Nothing without any. `width` in characters."""
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
    title += f", idle {_IDLE}" + ("; they repeat after 9 and z" if numbered else "")
    lines: list[object] = [Text(title, style="bold")]
    for rank in ranks[:_MOST_RANKS]:
        own = [row for row in actions if row["rank"] == rank]
        lines.append(Text.assemble(f"rank {rank}".ljust(label), _row(own, begin_ns, span_ns, cells), no_wrap=True))
    if len(ranks) > _MOST_RANKS:
        lines.append(Text(f"{len(ranks) - _MOST_RANKS} more ranks; --json --actions has all"))
    return [*lines, Text("")]


def _row(actions: list[dict[str, Any]], begin_ns: int, span_ns: int, cells: int) -> Text:
    """Of each cell the action that covers most of it, if it covers half."""
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
