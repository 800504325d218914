"""One typical step in time: what the ranks that matter did when, who came last, and who waited for it.

Where a rank communicates and nothing hides it, it either waits for another one or transfers: the waits are those of
matched collectives and messages. Where clocks cannot be compared nothing tells the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tracekit.explain.step_time.timelines import ACTIVITIES, INTERVALS, LETTERS, STEP_TIMELINES, StepTimelines
from tracekit.explain.stragglers.arrivals import Arrivals
from tracekit.explain.stragglers.peer_waits import PeerWaits, message_waits_of, waits_of
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.model.summary import RankSummary, StepParts
from tracekit.rank.recorded_steps import WAITS
from tracekit.report.report import Report
from tracekit.report.shown_ranks import ranks_to_show, step_to_show

PARTS = (*ACTIVITIES, "transfer", "waiting", "bubble")
"""communication: transfer or waiting, where they cannot be told apart. bubble: waiting for a message in a pipeline."""

_COMMUNICATION = LETTERS.index("t")
_LEAST_ARROW, _LEAST_OF_BLAMED = 0.05, 0.02  # of the picture: a shorter wait shows nothing
_ALIKE = 0.05  # of the step: ranks whose parts differ by less look the same


@dataclass(frozen=True, kw_only=True)
class PictureRow:
    """One rank, or several that look the same.

    Attributes:
        rank: whose time is drawn.
        alike: how many other ranks, which are not drawn, look the same.
        stages: of its pipeline; empty without one.
        step: its parts.
        segments: start, end and index into `PARTS`, in ns from the begin of the picture, without gaps.
    """

    rank: int
    alike: int
    stages: tuple[int, ...]
    step: StepParts
    segments: tuple[tuple[int, int, int], ...]

    @property
    def start_ns(self) -> int:
        return self.segments[0][0]

    @property
    def end_ns(self) -> int:
        return self.segments[-1][1]


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """The longest wait for a rank that is drawn.

    Attributes:
        start_ns: from the begin of the picture.
        end_ns: when the late rank comes, or its message.
        kind: of the collective, or `message`.
    """

    waiting_rank: int
    late_rank: int
    start_ns: int
    end_ns: int
    kind: str

    @property
    def wait_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, kw_only=True)
class StepPicture:
    """One step.

    Attributes:
        step: its number.
        begin_ns: of the picture, on the run's clock.
        length_ns: from the first begin of a row to the last end.
        rows: stages of a pipeline in order, or the last to arrive first.
        arrow: None if nobody waits for long.
        is_aligned: rows are on one clock; else each begins with its own step.
        device: of the drawn ranks; "gpu" if any has one.
    """

    step: int
    begin_ns: int
    length_ns: int
    rows: tuple[PictureRow, ...]
    arrow: Arrow | None
    is_aligned: bool
    device: Literal["gpu", "cpu"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _DrawnRank:
    summary: RankSummary
    step: StepParts
    start_ns: int
    end_ns: int
    letters: str
    waits: PeerWaits | None


def step_picture(report: Report, most_rows: int) -> StepPicture | None:
    """Return the picture of `step_to_show` with at most so many rows; None where no rank has completed it."""
    run, step, found = report.run, step_to_show(report), report.arrivals
    shown = _stages_to_show(report, most_rows) or ranks_to_show(report, most_rows)
    is_aligned = found is not None and clocks_are_comparable(run.ranks, run.clocks) and not run.ranks_are_independent
    aligned = found if is_aligned else None
    drawn = [
        rank
        for index, summary in enumerate(run.ranks)
        if summary.rank in shown and (rank := _drawn_rank(run, index, step, aligned)) is not None
    ]
    if not drawn or step is None:
        return None
    begin_ns = min(rank.start_ns for rank in drawn) if is_aligned else 0
    is_pipeline = any(rank.summary.pipeline is not None for rank in drawn)
    rows = [_row(rank, begin_ns if is_aligned else rank.start_ns, is_pipeline) for rank in drawn]
    length_ns = max(row.end_ns for row in rows)
    blamed = report.findings[0].concerned if report.findings else ()
    return StepPicture(
        step=step,
        begin_ns=begin_ns,
        length_ns=length_ns,
        rows=tuple(sorted(_with_alike(run, step, rows), key=lambda row: _order(row, is_pipeline, blamed))),
        arrow=_arrow(drawn, aligned, begin_ns, length_ns, blamed),
        is_aligned=is_aligned,
        device="gpu" if any(rank.summary.device == "gpu" for rank in drawn) else "cpu",
    )


def _order(row: PictureRow, is_pipeline: bool, blamed: Sequence[int]) -> tuple[int, int]:
    """Return the place of a row: by stage; else blamed ranks first, then those that wait least, which come last."""
    if is_pipeline:
        return min(row.stages, default=0), row.rank
    waiting = (PARTS.index("waiting"), PARTS.index("bubble"))
    wait_ns = sum(end_ns - start_ns for start_ns, end_ns, part in row.segments if part in waiting)
    return -1 if row.rank in blamed else wait_ns, row.rank


def _stages_to_show(report: Report, count: int) -> list[int]:
    """Return the ranks of one pipeline, that of the first rank that findings blame; none without a pipeline."""
    pipelines = {s.rank: s.pipeline for s in report.run.ranks if s.pipeline is not None}
    blamed = [rank for finding in report.findings for rank in finding.concerned if rank in pipelines]
    first = pipelines.get(blamed[0] if blamed else min(pipelines, default=-1))
    if first is None:
        return []
    ranks = sorted(rank for rank in (first.ranks or pipelines) if rank in pipelines)
    kept = {*blamed[: count - 1], *ranks[:count]} if len(ranks) > count else set(ranks)
    return sorted(kept, key=lambda rank: (rank not in blamed, rank))[:count]


def _drawn_rank(run: Run, index: int, number: int | None, found: Arrivals | None) -> _DrawnRank | None:
    summary, clock = run.ranks[index], run.clocks[index]
    timelines: StepTimelines = summary.parts.get(STEP_TIMELINES.name, StepTimelines.empty())
    parts = [step for step in summary.steps if step.step == number and step.complete]
    rows = np.flatnonzero(np.isin(timelines.start_ns, [step.start_ns for step in parts]))
    if not len(rows):
        return None
    row = int(rows[0])
    start_ns, end_ns = int(timelines.start_ns[row]), int(timelines.end_ns[row])
    if found is not None:
        start_ns, end_ns = clock.moment_to_run(start_ns), clock.moment_to_run(end_ns)
    return _DrawnRank(
        summary=summary,
        step=parts[0],
        start_ns=start_ns,
        end_ns=end_ns,
        letters=str(timelines.letters[row]),
        waits=None if found is None else _waits_in(run, found, index, start_ns, end_ns),
    )


def _waits_in(run: Run, found: Arrivals, index: int, start_ns: int, end_ns: int) -> PeerWaits:
    """Return the waits of a rank during some time of the run's clock, in order of time."""
    summary = run.ranks[index]
    none = np.empty(0, dtype=np.int64)
    waits = [waits_of(run, found, index, np.zeros(len(summary.collectives), dtype=np.uint8), none)]
    if WAITS.name in summary.parts:
        waits.append(message_waits_of(run, found, index, np.full(len(summary.messages), ABSENT, dtype=np.int64), none))
    every = PeerWaits.concatenate(waits)
    every = every.rows((every.end_ns > np.maximum(every.start_ns, start_ns)) & (every.start_ns < end_ns))
    return every.rows(np.argsort(every.start_ns, kind="stable"))


def _row(rank: _DrawnRank, begin_ns: int, is_pipeline: bool) -> PictureRow:
    pipeline = rank.summary.pipeline
    edges_ns = rank.start_ns + (rank.end_ns - rank.start_ns) * np.arange(INTERVALS + 1) // INTERVALS
    parts = _parts(rank, edges_ns, is_pipeline)
    first = np.flatnonzero(np.append(True, parts[1:] != parts[:-1]))
    edges = np.append(edges_ns[first], edges_ns[-1]) - begin_ns
    return PictureRow(
        rank=rank.summary.rank,
        alike=0,
        stages=() if pipeline is None else tuple(sorted(pipeline.layout.stage_ids)),
        step=rank.step,
        segments=tuple(zip(edges[:-1].tolist(), edges[1:].tolist(), parts[first].tolist(), strict=True)),
    )


def _parts(rank: _DrawnRank, edges_ns: Int64, is_pipeline: bool) -> Int64:
    """Return the part of each interval, an index into `PARTS`, int64 [INTERVALS]."""
    parts = np.array([LETTERS.index(letter) for letter in rank.letters], dtype=np.int64)
    if rank.waits is None:
        return parts
    communicates, middle_ns = parts == _COMMUNICATION, (edges_ns[:-1] + edges_ns[1:]) // 2
    parts[communicates] = PARTS.index("transfer")
    for is_message, part in ((0, "waiting"), (1, "bubble" if is_pipeline else "waiting")):
        waits = rank.waits.rows(rank.waits.is_message == is_message)
        begun = np.searchsorted(waits.start_ns, middle_ns, side="right")
        until_ns = np.append(0, np.maximum.accumulate(waits.end_ns))[begun]
        parts[communicates & (middle_ns < until_ns)] = PARTS.index(part)
    return parts


def _with_alike(run: Run, number: int, rows: Sequence[PictureRow]) -> list[PictureRow]:
    """Return the rows, each with how many of the ranks that are not drawn look most like it, and nearly the same."""
    drawn = {row.rank for row in rows}
    shares = np.array([_shares(row.step) for row in rows])
    alike = [0] * len(rows)
    for summary in run.ranks:
        step = next((s for s in summary.steps if s.step == number and s.complete), None)
        if summary.rank not in drawn and step is not None:
            differences = np.abs(shares - np.array(_shares(step))).max(axis=1)
            alike[int(differences.argmin())] += int(differences.min() < _ALIKE)
    return [replace(row, alike=count) for row, count in zip(rows, alike, strict=True)]


def _shares(step: StepParts) -> tuple[float, ...]:
    return tuple(part / max(step.step_ns, 1) for part in (step.compute_ns, step.exposed_comm_ns, step.idle_ns))


def _arrow(
    drawn: Sequence[_DrawnRank], arrivals: Arrivals | None, begin_ns: int, length_ns: int, blamed: Sequence[int]
) -> Arrow | None:
    """Return the longest wait for a drawn rank; for a blamed one, if there is any that is long."""
    if arrivals is None:
        return None
    ranks, found = [rank.summary.rank for rank in drawn], []
    for rank in drawn:
        waits = PeerWaits.empty() if rank.waits is None else rank.waits
        waits = waits.rows(np.isin(waits.blamed_rank, ranks))
        wait_ns = waits.end_ns - waits.start_ns
        is_blamed = np.isin(waits.blamed_rank, blamed) & (wait_ns >= _LEAST_OF_BLAMED * length_ns)
        for row in np.lexsort((wait_ns, is_blamed))[-1:].tolist():
            kind = "message" if waits.is_message[row] else KINDS[arrivals.instances.kind[waits.instance[row]]]
            arrow = Arrow(
                waiting_rank=rank.summary.rank,
                late_rank=int(waits.blamed_rank[row]),
                start_ns=int(waits.start_ns[row]) - begin_ns,
                end_ns=int(waits.end_ns[row]) - begin_ns,
                kind=kind,
            )
            found.append((bool(is_blamed[row]), arrow.wait_ns, arrow))
    if not found:
        return None
    is_of_blamed, longest_ns, longest = max(found, key=lambda each: each[:2])
    return longest if is_of_blamed or longest_ns >= _LEAST_ARROW * length_ns else None
