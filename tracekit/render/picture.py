"""The picture of one step in text: a line a rank, a mark for what it mostly does then.

rank 7  ·····=====·········█··▒█   8%   1%  91%  last
rank 1  ==··~~~~~~~~~~~~~~~█··▒█   6%  60%  34%  waits 7.6 ms
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tracekit.model.run import ranks_text
from tracekit.model.texts import count_text
from tracekit.render.palette import LOOKS
from tracekit.report.step_picture import PARTS, Arrow, PictureRow, StepPicture

if TYPE_CHECKING:
    from rich.text import Text

_APART = 0.1  # of the longest step: with ranks that begin so far apart, the picture is longer than a step
_LEAST_WIDTH = 24  # of the drawn step: with less the shares are left out
_HEADS = {"gpu": " comp comm+wait idle", "cpu": " comp comm+wait rest"}
"""Of the shares of each row. What a rank without a device does besides is Python."""


def draw_picture(picture: StepPicture, ranks: int, width: int, servers: Sequence[int] = ()) -> list[Text]:
    """Return a legend, the rows, and below them what the arrow says: lines of at most `width` characters.

    ranks: how many the run has. servers: those that only serve others, and have no steps.
    """
    from rich.text import Text

    labels = [row_label(row) for row in picture.rows]
    notes = [_note(row, picture) for row in picture.rows]
    shares = [_shares(row) for row in picture.rows]
    label_width, note_width = max(map(len, labels)), max(map(len, notes))
    room = width - label_width - note_width - 2
    has_shares = room - len(shares[0]) >= _LEAST_WIDTH
    room -= len(shares[0]) * has_shares
    lines = [*_legend(picture, width), _scale(picture, label_width, room, _HEADS[picture.device] * has_shares)]
    for row, label, share, note in zip(picture.rows, labels, shares, notes, strict=True):
        line = Text(f"{label:<{label_width}} ")
        for part, count in _runs(row, picture.length_ns, room):
            line.append((" " if part is None else LOOKS[part].mark) * count, style="" if part is None else _style(part))
        line.append(share * has_shares, style="dim").append(f" {note}" if note else "")
        lines.append(line)
    lines += _below(picture, label_width + 1, room, width, ranks - len(servers), servers)
    return lines


def _style(part: str) -> str:
    return LOOKS[part].colour


def row_label(row: PictureRow) -> str:
    """Return the name of a row: its rank, and how many others look the same."""
    return f"rank {row.rank}" + (f" (+{row.alike} alike)" if row.alike else "")


def _note(row: PictureRow, picture: StepPicture) -> str:
    """Return what the picture says of a row: who is late, who waits for it, or its stage."""
    stage = f"stage {', '.join(map(str, row.stages))}" if row.stages else ""
    arrow = picture.arrow
    if arrow is None or row.rank not in (arrow.late_rank, arrow.waiting_rank):
        return stage
    if row.rank == arrow.late_rank:
        return stage or "last"
    return f"waits {arrow.wait_ns / 1e6:.1f} ms"


def _shares(row: PictureRow) -> str:
    step = row.step
    parts = (step.compute_ns, step.exposed_comm_ns, step.exposed_copy_ns + step.idle_ns)
    compute, communication, rest = (part / max(step.step_ns, 1) for part in parts)
    return f" {compute:4.0%} {communication:9.0%} {rest:4.0%}"


def _runs(row: PictureRow, length_ns: int, room: int) -> list[tuple[str | None, int]]:
    """Return the part that covers most of each of `room` characters, and of how many. None: outside of the step."""
    edges_ns = np.arange(room + 1) * length_ns / room
    covered_ns = np.zeros((len(PARTS), room))
    for start_ns, end_ns, part in row.segments:
        covered_ns[part] += np.maximum(np.minimum(edges_ns[1:], end_ns) - np.maximum(edges_ns[:-1], start_ns), 0)
    inside = covered_ns.sum(axis=0) >= length_ns / room / 2
    marks = np.where(inside, covered_ns.argmax(axis=0), -1)
    begins = np.flatnonzero(np.append(True, marks[1:] != marks[:-1]))
    counts = np.diff(np.append(begins, room)).tolist()
    names = (None if part < 0 else PARTS[part] for part in marks[begins].tolist())
    return list(zip(names, counts, strict=True))


def _legend(picture: StepPicture, width: int) -> list[Text]:
    """Return what the marks mean, of the parts that are drawn."""
    from rich.text import Text

    drawn = {part for row in picture.rows for _, _, part in row.segments}
    lines = [Text()]
    for number, name in enumerate(PARTS):
        if number not in drawn:
            continue
        look = LOOKS[name]
        text = look.name_on_cpu if picture.device == "cpu" and look.name_on_cpu else look.name
        if len(lines[-1]) + len(text) + 2 > width:
            lines[-1].rstrip()
            lines.append(Text())
        lines[-1].append(look.mark, style=_style(name)).append(f" {text}  ", style="dim")
    lines[-1].rstrip()
    return lines


def _scale(picture: StepPicture, label_width: int, room: int, shares: str) -> Text:
    """Return the line above the rows: the number of the step, its begin and end, and what the shares are."""
    from rich.text import Text

    step, end = f"step #{picture.step}", f"{picture.length_ns / 1e6:.1f} ms"
    gap = label_width + 1 + room - max(len(step), label_width) - 1 - len("0 ms") - len(end)
    return Text(f"{step:<{label_width}} 0 ms{' ' * gap}{end}{shares}", style="dim")


def _below(picture: StepPicture, left: int, room: int, width: int, ranks: int, servers: Sequence[int]) -> list[Text]:
    """Return what is said below the rows: whose arrival the arrow is, and what is not drawn or not on one clock."""
    from rich.text import Text

    lines, arrow = [], picture.arrow
    if arrow is not None:
        said = arrival_text(arrow)
        column = left + min(int(arrow.end_ns / picture.length_ns * room), room - 1)
        fits = column + 2 + len(said) <= width
        lines.append(Text(f"{' ' * column}↑ {said}" if fits else f"{said} ↑".rjust(column + 1)))
    shown = sum(1 + row.alike for row in picture.rows)
    if shown < ranks:
        lines.append(Text(f"{count_text(ranks - shown, 'rank')} not drawn", style="dim"))
    if servers:
        lines.append(Text(f"{ranks_text(servers)} serve{'s' * (len(servers) == 1)} the others: no steps", style="dim"))
    if begins := begins_text(picture):
        lines.append(Text(begins, style="dim"))
    for line in lines:
        line.truncate(width)
    return lines


def begins_text(picture: StepPicture) -> str:
    """Return what is to know of where the rows begin; nothing if they begin together."""
    if len(picture.rows) < 2:
        return ""
    if not picture.is_aligned:
        return "each rank from its own begin of the step"
    begins_ns = [row.start_ns for row in picture.rows]
    apart_ns = max(begins_ns) - min(begins_ns)
    is_notable = apart_ns >= _APART * max(row.step.step_ns for row in picture.rows)
    return f"ranks begin this step up to {apart_ns / 1e6:.1f} ms apart" if is_notable else ""


def arrival_text(arrow: Arrow) -> str:
    """Return whose arrival ends the wait of the arrow."""
    rank = f"rank {arrow.late_rank}"
    return f"{rank}'s message arrives" if arrow.kind == "message" else f"{rank} arrives at the {arrow.kind}"
