"""What a few ranks did in the typical and in the worst step, from a second read of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.explain.step_time.step_lengths import typical_step
from tracekit.explain.stragglers.peer_waits import PeerWaits, message_waits_of, waits_of
from tracekit.explain.stragglers.stragglers import arrivals
from tracekit.loading.options import SummaryOptions
from tracekit.model.events import ABSENT
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.rank.recorded_steps import WAITS
from tracekit.render.page.chart_contract import LaneRank, LaneSpans, LaneView
from tracekit.report.report import Report
from tracekit.report.shown_ranks import Reason, reasons_to_show
from tracekit.report.step_lanes import LANES, StepLanes, StepTime, read_step_lanes

MOST_RANKS = 16
_MOST_WAITS = 60  # of a rank in a step, the longest

LaneReader = Callable[[Run, Sequence[StepTime], int], Sequence[StepLanes]]
"""Reads what the ranks did in these steps (`read_step_lanes`), at most so many operations of each."""


def read_again(run: Run, times: Sequence[StepTime], most_operations: int) -> Sequence[StepLanes]:
    """Read the ranks one after the other, with the rules that the run was loaded with."""
    options = SummaryOptions().with_rules(run.communication_rules)
    return read_step_lanes(run, times, most_operations=most_operations, options=options)


@dataclass(frozen=True, kw_only=True)
class _ChosenStep:
    """A step to show.

    Attributes:
        start_ns: of the first bin, on the run's clock.
        length_ns: of all bins.
        times: by rank.
    """

    kind: Literal["typical", "worst"]
    step: int
    start_ns: int
    length_ns: int
    times: Mapping[int, StepTime]


def lane_views(report: Report, read: LaneReader, *, bins: int, operations: int) -> list[LaneView]:
    """Return the typical and the worst step; only one if that is all there is, none without steps of all ranks.

    Bins are at the same time on all ranks, on the run's clock. Where clocks cannot be compared, or ranks do not
    communicate, each rank begins with its own step. Raises InputError when a file of a run cannot be read any more.
    """
    run, reasons = report.run, reasons_to_show(report, MOST_RANKS)
    lengths_ns, typical = run.step_lengths_ns, typical_step(run)
    if typical is None or not reasons:
        return []
    worst = max(lengths_ns, key=lambda step: (lengths_ns[step], -step))
    chosen = [_chosen_step(run, "typical", typical, reasons, bins)]
    if worst != typical:
        chosen.append(_chosen_step(run, "worst", worst, reasons, bins))
    found = read(run, [time for step in chosen for time in step.times.values()], operations)
    by_step = {(lanes.time.rank, lanes.time.step): lanes for lanes in found}
    waits = _waits(run, list(reasons))
    return [_view(step, by_step, reasons, waits) for step in chosen]


def _chosen_step(
    run: Run, kind: Literal["typical", "worst"], number: int, ranks: Mapping[int, Reason], bins: int
) -> _ChosenStep:
    comparable = clocks_are_comparable(run.ranks, run.clocks) and not run.ranks_are_independent
    windows: dict[int, tuple[int, int]] = {}
    shifts_ns: dict[int, int] = {}
    for summary, clock in zip(run.ranks, run.clocks, strict=True):
        if summary.rank in ranks:
            step = next(step for step in summary.steps if step.step == number)
            windows[summary.rank] = (step.start_ns, step.start_ns + step.step_ns)
            on_run_ns = clock.moment_to_run(step.start_ns) if comparable else 0
            shifts_ns[summary.rank] = step.start_ns - on_run_ns  # a clock drifts by nothing within a step
    start_ns = min(begin - shifts_ns[rank] for rank, (begin, _) in windows.items())
    end_ns = max(end - shifts_ns[rank] for rank, (_, end) in windows.items())
    times = {
        rank: StepTime(
            rank=rank,
            step=number,
            start_ns=begin_ns,
            end_ns=until_ns,
            origin_ns=start_ns + shifts_ns[rank],
            length_ns=max(end_ns - start_ns, 1),
            bins=bins,
        )
        for rank, (begin_ns, until_ns) in windows.items()
    }
    return _ChosenStep(kind=kind, step=number, start_ns=start_ns, length_ns=max(end_ns - start_ns, 1), times=times)


def _waits(run: Run, ranks: Sequence[int]) -> dict[int, PeerWaits]:
    """Return the waits of these ranks, in collectives and for messages; none where clocks cannot be compared."""
    if not clocks_are_comparable(run.ranks, run.clocks):
        return {}
    found, none = arrivals(run), np.empty(0, dtype=np.int64)
    waits: dict[int, PeerWaits] = {}
    for rank_index, summary in enumerate(run.ranks):
        if summary.rank in ranks:
            role = np.zeros(len(summary.collectives), dtype=np.uint8)
            number = np.full(len(summary.messages), ABSENT, dtype=np.int64)
            of_rank = [waits_of(run, found, rank_index, role, none)]
            if WAITS.name in summary.parts:  # not where only some sections were asked for
                of_rank.append(message_waits_of(run, found, rank_index, number, none))
            waits[summary.rank] = PeerWaits.concatenate(of_rank)
    return waits


def _view(
    chosen: _ChosenStep,
    by_step: Mapping[tuple[int, int], StepLanes],
    reasons: Mapping[int, Reason],
    waits: Mapping[int, PeerWaits],
) -> LaneView:
    names: dict[str, int] = {}
    of_ranks = [lanes for rank in chosen.times if (lanes := by_step.get((rank, chosen.step))) is not None]
    used = [lane for lane in range(len(LANES)) if any((lanes.covered[lane] > 0).any() for lanes in of_ranks)]
    ranks = [_rank(chosen, of_rank, reasons, waits, used, names) for of_rank in of_ranks]
    return LaneView(
        kind=chosen.kind,
        step=chosen.step,
        length_ns=chosen.length_ns,
        bins=next(iter(chosen.times.values())).bins,
        lanes=[LANES[lane] for lane in used],
        names=list(names),
        ranks=ranks,
    )


def _rank(
    chosen: _ChosenStep,
    lanes: StepLanes,
    reasons: Mapping[int, Reason],
    waits: Mapping[int, PeerWaits],
    used: Sequence[int],
    names: dict[str, int],
) -> LaneRank:
    """Return one rank with the lanes `used`, indices into `LANES`. Names that are not in `names` yet are added."""

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    per_cent = np.where(lanes.covered > 0, np.clip(np.rint(100 * lanes.covered), 1, 100), 0).astype(np.int64)
    phases = [[start_ns, end_ns, number(phase)] for start_ns, end_ns, phase in lanes.phases]
    rank, operations = lanes.time.rank, lanes.operations
    return LaneRank(
        rank=rank,
        reason=reasons[rank],
        start_ns=lanes.time.start_ns - lanes.time.origin_ns,
        end_ns=lanes.time.end_ns - lanes.time.origin_ns,
        covered=per_cent[used].tolist(),
        phases=phases,
        waits=_waits_in(chosen, waits[rank]) if rank in waits else [],
        spans=LaneSpans(
            start_ns=[operation.start_ns for operation in operations],
            end_ns=[operation.end_ns for operation in operations],
            lane=[used.index(operation.lane) for operation in operations],
            name=[number(operation.name) for operation in operations],
        ),
    )


def _waits_in(chosen: _ChosenStep, waits: PeerWaits) -> list[list[int | None]]:
    """Return the longest waits of the step: start, end, and the rank that was waited for; in order of time."""
    rows = waits.rows(np.flatnonzero((waits.step == chosen.step) & (waits.end_ns > waits.start_ns)))
    rows = rows.rows(np.argsort(rows.start_ns - rows.end_ns, kind="stable")[:_MOST_WAITS])
    rows = rows.rows(np.argsort(rows.start_ns, kind="stable"))
    start_ns, end_ns = rows.start_ns - chosen.start_ns, rows.end_ns - chosen.start_ns
    columns = (start_ns.tolist(), end_ns.tolist(), rows.blamed_rank.tolist())
    return [[begin, end, None if rank == ABSENT else rank] for begin, end, rank in zip(*columns, strict=True)]
