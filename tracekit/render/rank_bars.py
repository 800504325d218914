"""One bar a rank: what its mean step consists of. Of many ranks, those that matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tracekit.model.run import Run
from tracekit.report.report import Report
from tracekit.stats.apportion import apportion

if TYPE_CHECKING:
    from rich.text import Text


SHOWN_RANKS = 8
Reason = Literal["blamed", "critical", "median", "lowest"]
"""Why a rank is shown where not all are."""

_SEGMENTS = ("compute", "communication", "copy", "idle")
_MARK = {"compute": "█", "communication": "▒", "copy": "▓", "idle": "·"}
_STYLE = {"compute": "green", "communication": "yellow", "copy": "blue", "idle": "red"}


@dataclass(frozen=True, kw_only=True)
class RankBar:
    """The mean step of a rank. `shares` are of `_PARTS`; communication and copies count where compute hides none."""

    rank: int
    step_ns: float
    shares: tuple[float, ...]


def ranks_to_show(report: Report, count: int) -> list[int]:
    """Return at most `count` ranks, ascending: see `reasons_to_show`."""
    return list(reasons_to_show(report, count))


def reasons_to_show(report: Report, count: int) -> dict[int, Reason]:
    """Return at most `count` ranks, ascending, each with the first reason for it.

    Findings blame it, it bounds the steps most, its share of exposed communication is the median, or it is one of the
    lowest.
    """
    run = report.run
    measured = [summary.rank for summary in run.ranks if any(step.complete for step in summary.steps)]
    blamed = [rank for finding in report.findings for rank in finding.concerned]
    most_blamed = len(blamed) if len(measured) <= count else max(count - 2, 1)
    reasons: dict[int, Reason] = {}
    ranks_of: tuple[tuple[Reason, Sequence[int]], ...] = (
        ("blamed", blamed[:most_blamed]),
        ("critical", _critical(report)),
        ("median", _median(run, measured)),
        ("lowest", measured),
    )
    for reason, ranks in ranks_of:
        for rank in ranks:
            reasons.setdefault(rank, reason)
    known = set(measured)
    chosen = [rank for rank in reasons if rank in known][:count]
    return {rank: reasons[rank] for rank in sorted(chosen)}


def step_to_show(report: Report) -> int | None:
    """Return the step that the first finding is about, else the median of the steps that all ranks completed; None
    without any."""
    steps = sorted(report.run.common_steps())
    if not steps:
        return None
    step = report.findings[0].step if report.findings else None
    return steps[len(steps) // 2] if step is None else step


def bars(run: Run, ranks: Iterable[int]) -> list[RankBar]:
    """Return the bars of ranks that completed a step."""
    wanted, result = set(ranks), []
    for summary in run.ranks:
        steps = [step for step in summary.steps if step.complete]
        if summary.rank not in wanted or not steps:
            continue
        total_ns = max(sum(step.step_ns for step in steps), 1)
        lengths_ns = (
            sum(step.compute_ns for step in steps),
            sum(step.exposed_comm_ns for step in steps),
            sum(step.exposed_copy_ns for step in steps),
            sum(step.idle_ns for step in steps),
        )
        shares = tuple(segment / total_ns for segment in lengths_ns)
        result.append(RankBar(rank=summary.rank, step_ns=total_ns / len(steps), shares=shares))
    return result


def draw_bar(bar: RankBar, label_width: int, width: int) -> Text:
    """Return one line of at most `width` characters."""
    from rich.text import Text

    compute, communication, copy, idle = bar.shares
    numbers = f" {compute:4.0%} {communication:4.0%} {copy + idle:4.0%}"
    label = f"rank {bar.rank}".ljust(label_width)
    room = max(width - len(label) - len(numbers) - 1, 8)
    lengths = apportion(room, np.array(bar.shares)).tolist()
    text = Text(f"{label} ")
    for segment, length in zip(_SEGMENTS, lengths, strict=True):
        text.append(_MARK[segment] * length, style=_STYLE[segment])
    return text.append(numbers)


def legend(shown: Sequence[RankBar], ranks: int, width: int) -> Text:
    """Return what the marks and the three numbers of each line mean."""
    from rich.text import Text

    text = Text()
    copies = any(bar.shares[_SEGMENTS.index("copy")] >= 0.005 for bar in shown)
    names = {"communication": "exposed communication, with waiting"}
    if copies:  # both are in the last number
        names["idle"] = "copies and idle"
    for segment in _SEGMENTS:
        if segment == "copy":
            text.append(f"{_MARK[segment]}+" * copies, style=_STYLE[segment])
        else:
            text.append(_MARK[segment], style=_STYLE[segment]).append(f" {names.get(segment, segment)}  ", style="dim")
    if len(shown) < ranks:
        text.append(f"{len(shown)} of {ranks} ranks", style="dim")
    text.truncate(width)
    return text


def _critical(report: Report) -> list[int]:
    """Return the rank that the chain that bounds the steps is on for longest."""
    path = report.critical_path
    times: Counter[int] = Counter()
    for interval in () if path is None else path.intervals:
        times[interval.rank] += interval.end_ns - interval.start_ns
    return [rank for rank, _ in times.most_common(1)]


def _median(run: Run, measured: Sequence[int]) -> list[int]:
    """Return a rank that waits as long as the median of the ranks."""
    waits = [(bar.shares[1], bar.rank) for bar in bars(run, measured)]
    return [sorted(waits)[len(waits) // 2][1]] if waits else []
