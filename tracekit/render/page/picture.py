"""The picture of one typical step as the page draws it."""

from __future__ import annotations

from tracekit.render.page.chart_contract import PictureArrow, PictureLine, PicturePart, PictureView
from tracekit.render.palette import LOOKS
from tracekit.render.picture import arrival_text, begins_text, row_label
from tracekit.report.report import Report
from tracekit.report.step_picture import PARTS, PictureRow, StepPicture, step_picture

_MOST_ROWS = 10


def picture_view(report: Report) -> PictureView | None:
    """Return the picture, with its parts in the order of the legend; None where no rank completed a step."""
    picture = step_picture(report, _MOST_ROWS)
    if picture is None:
        return None
    drawn = sorted({part for row in picture.rows for _, _, part in row.segments})
    arrow = picture.arrow
    return PictureView(
        step=picture.step,
        length_ns=picture.length_ns,
        begins=begins_text(picture),
        ranks=len(report.run.ranks),
        parts=[_part(PARTS[part], picture.device) for part in drawn],
        rows=[_line(row, picture, drawn) for row in picture.rows],
        arrow=None
        if arrow is None
        else PictureArrow(
            waiting_rank=arrow.waiting_rank,
            late_rank=arrow.late_rank,
            start_ns=arrow.start_ns,
            end_ns=arrow.end_ns,
            text=arrival_text(arrow),
        ),
    )


def _part(name: str, device: str) -> PicturePart:
    look = LOOKS[name]
    shown = look.name_on_cpu if device == "cpu" and look.name_on_cpu else look.name
    return PicturePart(name=shown, colour=look.colour, is_hollow=look.is_hollow)


def _line(row: PictureRow, picture: StepPicture, drawn: list[int]) -> PictureLine:
    return PictureLine(
        rank=row.rank,
        alike=row.alike,
        stages=list(row.stages),
        label=row_label(row),
        segments=[[start_ns, end_ns, drawn.index(part)] for start_ns, end_ns, part in row.segments],
        step_ns=row.step.step_ns,
        compute_ns=row.step.compute_ns,
        exposed_comm_ns=row.step.exposed_comm_ns,
        exposed_copy_ns=row.step.exposed_copy_ns,
        idle_ns=row.step.idle_ns,
    )
