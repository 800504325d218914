"""How far each rank's clock is from the run's, which is that of the lowest rank whose clock is known.

No rank leaves a synchronising collective before the last has entered. So its end is one moment on all ranks, up to the
spread of the transfer. A measurement by the probe holds as long as these moments do not contradict it, and so does the
rule that processes of one host share a clock. If they contradict, or nothing was measured, the moments decide.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from tracekit.analysis.clocks.fit import ClockFit, fit_clock
from tracekit.analysis.clocks.measured import probe_clock
from tracekit.analysis.clocks.notes import clock_notes
from tracekit.analysis.clocks.reference import on_reference
from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.notes import Note
from tracekit.model.run import ClockJump, ClockModel
from tracekit.model.summary import RankSummary

__all__ = ["SYNCHRONISING", "align"]

SYNCHRONISING = tuple(
    KINDS.index(kind) for kind in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier")
)
_MAY_SYNCHRONISE = tuple(KINDS.index(kind) for kind in ("send_recv", "unknown", "dispatch", "combine"))
_MOVED_BACK_NS = 1_000_000
_FEWEST = 3  # moments needed to contradict a measurement, or to show their spread

Method = Literal["probe", "collectives", "none"]


def align(
    ranks: Sequence[RankSummary], collectives: Sequence[MatchedGroup] = ()
) -> tuple[tuple[ClockModel, ...], list[Note]]:
    """Return a clock model for each of the `ranks` (ascending), and notes about clocks.

    All models are against the lowest rank whose clock is known.
    """
    hosts: dict[str | None, list[int]] = {}
    for summary in ranks:
        if summary.machine is not None:
            hosts.setdefault(summary.machine, []).append(summary.rank)
    state = _State(ranks=ranks, measured={summary.rank: probe_clock(summary) for summary in ranks}, hosts=hosts)
    moments = [group_moments for group in collectives if (group_moments := _Moments.of(ranks, group)) is not None]
    anchors = sorted(ranks, key=_content_of_ranks(state, moments))
    groups_of_rank: dict[int, list[int]] = {}
    for i, group_moments in enumerate(moments):
        for rank in group_moments.ranks:
            groups_of_rank.setdefault(rank, []).append(i)
    for anchor in anchors:
        if anchor.rank in state.models:
            continue
        state.models[anchor.rank] = state.measured[anchor.rank]
        state.root[anchor.rank] = anchor.rank
        # Groups with a rank whose clock is known, most moments first. A group may be used more than once.
        waiting = [(moments[i].content, i) for i in groups_of_rank.get(anchor.rank, ())]
        heapq.heapify(waiting)
        while waiting:
            _, i = heapq.heappop(waiting)
            aligned = _align_group(state, moments[i])
            for other in {group for rank in aligned for group in groups_of_rank[rank]} - {i}:
                heapq.heappush(waiting, (moments[other].content, other))
    models = on_reference(state.ranks, state.models, state.root, state.measured)
    return models, clock_notes(ranks, models, state.measured)


def _content_of_ranks(state: _State, moments: Sequence[_Moments]) -> Callable[[RankSummary], tuple[int, ...]]:
    """Return a sort key that decides with which rank to begin, so that neither its number nor its clock matters.

    First come ranks that were measured, then those whose time never goes back, then those with the most moments, and
    then those whose moments took the shortest time.
    """
    moved_back, count, durations_ns, mixed = (Counter[int]() for _ in range(4))
    for group_moments in moments:
        place = np.arange(1, group_moments.count + 1)
        for r, rank in enumerate(group_moments.ranks):
            present = group_moments.there[r]
            duration_ns = (group_moments.end_ns[r] - group_moments.start_ns[r])[present]
            moved_back[rank] += int((np.diff(group_moments.end_ns[r, present]) < -_MOVED_BACK_NS).any())
            count[rank] += len(duration_ns)
            durations_ns[rank] += int(duration_ns.sum())
            mixed[rank] += int((duration_ns * place[present]).sum())

    def key(summary: RankSummary) -> tuple[int, ...]:
        rank = summary.rank
        unmeasured = state.measured[rank].method == "none"
        return (unmeasured, moved_back[rank], -count[rank], durations_ns[rank], mixed[rank], rank)

    return key


@dataclass(kw_only=True)
class _State:
    """The models so far, in one frame: the clock that the probes measured against, else that of the lowest rank.

    Attributes:
        measured: by the probe.
        hosts: the ranks of each host; None is no known host, whose ranks share no clock.
        models: by rank.
        root: through which rank's clock a rank's clock is known.
    """

    ranks: Sequence[RankSummary]
    measured: dict[int, ClockModel]
    hosts: dict[str | None, list[int]]
    models: dict[int, ClockModel] = field(default_factory=dict)
    root: dict[int, int] = field(default_factory=dict)

    def prior(self, summary: RankSummary) -> ClockModel | None:
        """Return the model of a rank that holds unless collectives contradict it: its measurement, else its host's
        clock.
        """
        measured = self.measured[summary.rank]
        if measured.method != "none":
            return measured
        same_host = [self.models[rank] for rank in self.hosts.get(summary.machine, ()) if rank in self.models]
        best = min(same_host, key=lambda model: (model.error_ns or 0, model.offset_ns), default=None)
        return None if best is None else replace(best, rank=summary.rank)


@dataclass(frozen=True, kw_only=True)
class _Moments:
    """Ends of n synchronising collectives of k ranks.

    Attributes:
        start_ns: int64 [k, n], on each rank's clock.
        end_ns: int64 [k, n], on each rank's clock.
        there: bool [k, n].
        transfer_ns: the median time that the last rank to enter spends in the collective; this needs no common clock.
        content: a sort key of groups that does not depend on the numbers of their ranks.
    """

    ranks: tuple[int, ...]
    start_ns: Int64
    end_ns: Int64
    there: Bool
    transfer_ns: int
    content: tuple[int, ...]

    @property
    def count(self) -> int:
        return int(self.end_ns.shape[1])

    @classmethod
    def of(cls, ranks: Sequence[RankSummary], group: MatchedGroup) -> _Moments | None:
        """Return the moments of a group; None when it synchronises no two ranks."""
        shared = (group.row != ABSENT).sum(axis=0) > 1
        chosen = np.flatnonzero(shared & np.isin(group.kind, SYNCHRONISING))
        if not len(chosen):
            chosen = np.flatnonzero(shared & np.isin(group.kind, _MAY_SYNCHRONISE))
        if not len(chosen):
            return None
        collectives = {summary.rank: summary.collectives for summary in ranks}
        row = group.row[:, chosen]
        there = row != ABSENT
        start_ns, end_ns = np.zeros((2, *row.shape), dtype=np.int64)
        for r, rank in enumerate(group.ranks.tolist()):
            present = there[r]
            start_ns[r, present] = collectives[rank].start_ns[row[r, present]]
            end_ns[r, present] = collectives[rank].end_ns[row[r, present]]
        durations_ns = end_ns - start_ns
        transfer_ns = int(np.median(np.where(there, durations_ns, np.iinfo(np.int64).max).min(axis=0)))
        return cls(
            ranks=tuple(group.ranks.tolist()),
            start_ns=start_ns,
            end_ns=end_ns,
            there=there,
            transfer_ns=transfer_ns,
            content=(-len(chosen), transfer_ns, int(durations_ns.sum())),
        )


def _align_group(state: _State, moments: _Moments) -> list[int]:
    """Add models for the ranks of the group that have none, against those that have one. Return the ranks that got
    one.
    """
    known = [r for r, rank in enumerate(moments.ranks) if rank in state.models]
    unknown = [r for r, rank in enumerate(moments.ranks) if rank not in state.models]
    if not known or not unknown:
        return []
    target_ns, target = _target(state, moments, known)
    error_ns = min(state.models[moments.ranks[r]].error_ns or 0 for r in known)
    root = state.root[moments.ranks[known[0]]]
    summaries = {summary.rank: summary for summary in state.ranks}
    models = {}
    for r in unknown:
        rank = moments.ranks[r]
        both = target & moments.there[r]
        if not both.any():
            continue
        end_ns = moments.end_ns[r, both]
        models[rank] = _model(state, summaries[rank], moments.transfer_ns, end_ns, target_ns[both], error_ns)
    state.models |= models
    state.root |= dict.fromkeys(models, root)
    return list(models)


def _target(state: _State, moments: _Moments, known: Sequence[int]) -> tuple[Int64, Bool]:
    """Return when each collective ended in the frame, and for which collectives this is known: int64 [n] and bool [n].

    The end is the median over the ranks whose clock is known.
    """
    there = moments.there[known]
    ends_ns = np.stack([state.models[moments.ranks[r]].to_run(moments.end_ns[r]) for r in known])
    if len(known) == 1:
        return ends_ns[0], there[0]
    any_there = np.asarray(there.any(axis=0))
    base_ns: Int64 = ends_ns[np.argmax(there, axis=0), np.arange(ends_ns.shape[1])]
    difference_ns = np.where(there, (ends_ns - base_ns).astype(np.float64), np.nan)
    difference_ns[:, ~any_there] = 0.0
    median_ns: Int64 = np.rint(np.nanmedian(difference_ns, axis=0)).astype(np.int64)
    return base_ns + median_ns, any_there


def _model(
    state: _State, summary: RankSummary, transfer_ns: int, end_ns: Int64, target_ns: Int64, error_ns: int
) -> ClockModel:
    """Return the model of one rank from the ends of its collectives (int64 [n]) and their times in the frame (int64
    [n]).
    """
    prior = state.prior(summary)
    if prior is not None:
        measured = state.measured[summary.rank].method != "none"
        apart_ns = prior.to_run(end_ns) - target_ns
        off_ns, noise_ns = _middle_and_noise(apart_ns)
        if not _contradict(apart_ns, target_ns, transfer_ns, prior.error_ns or 0):
            if measured:
                return prior
            uncertain_ns = round(abs(off_ns) + 2 * noise_ns / np.sqrt(len(apart_ns)))
            method: Method = "probe" if prior.method == "probe" else "collectives"
            return replace(prior, method=method, error_ns=(prior.error_ns or 0) + uncertain_ns)
    fit = fit_clock(end_ns, target_ns)
    spread_ns = fit.spread_ns if fit.count >= _FEWEST else max(fit.spread_ns, transfer_ns)
    return _model_of_fit(summary.rank, fit, error_ns + spread_ns)


def _contradict(apart_ns: Int64, target_ns: Int64, transfer_ns: int, error_ns: int) -> bool:
    """Return whether the ends of collectives show another clock than the assumed one.

    They are off by `apart_ns` at `target_ns`, int64 [n] each. They contradict by their median (a rank may always be the
    first or the last to finish), by a drift, or by jumps.
    """
    if len(apart_ns) < _FEWEST:
        return False
    off_ns, noise_ns = _middle_and_noise(apart_ns)
    if abs(off_ns) > noise_ns + transfer_ns + error_ns:
        return True
    fit = fit_clock(target_ns + apart_ns, target_ns)
    drifted_ns = abs(fit.drift or 0.0) * int(np.ptp(target_ns))
    return len(fit.pieces) > 1 or drifted_ns > fit.spread_ns + error_ns


def _middle_and_noise(apart_ns: Int64) -> tuple[float, float]:
    """Return the median, and the deviation from it that nine of ten stay within."""
    middle = float(np.median(apart_ns - apart_ns[0]))
    deviations = np.abs((apart_ns - apart_ns[0]) - middle)
    return middle + int(apart_ns[0]), float(np.percentile(deviations, 90, method="higher"))


def _model_of_fit(rank: int, fit: ClockFit, error_ns: int) -> ClockModel:
    """Return the clock model of a fit."""
    first, *later = fit.pieces
    # If a clock was set back, times before and after cannot be told apart. The error then covers the whole jump.
    error_ns += 2 * max((abs(piece.offset_ns - first.offset_ns) for piece in later if piece.overlaps), default=0)
    return ClockModel(
        rank=rank,
        method="collectives",
        offset_ns=first.offset_ns,
        at_ns=first.at_ns,
        drift_ppm=None if fit.drift is None else fit.drift * 1e6,
        error_ns=error_ns,
        jumps=tuple(ClockJump(from_ns=p.from_ns, offset_ns=p.offset_ns, at_ns=p.at_ns) for p in later),
    )
