"""What a reader must know of the clocks of a run: jumps, drifts, contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from tracekit.analysis.clocks.jumping import RankJump, jumping_clocks
from tracekit.analysis.clocks.measured import recorded_time
from tracekit.model.clocks import ClockModel
from tracekit.model.notes import Note
from tracekit.model.ranks import ranks_text
from tracekit.model.summary import RankSummary

_NOTABLE_DRIFT_PPM = 10.0
_NOTABLE_NS = 10_000
_EVIDENCE = {"collectives": "the ends of its collectives", "messages": "its messages"}

__all__ = ["clock_notes", "jump_text"]


def clock_notes(
    ranks: Sequence[RankSummary], models: Sequence[ClockModel], measured: Mapping[int, ClockModel]
) -> list[Note]:
    """Return notes about ranks whose clock jumps or drifts, or is not what was measured or what their host shows."""
    evidence = {model.rank: _EVIDENCE.get(model.method, _EVIDENCE["collectives"]) for model in models}
    jumping = jumping_clocks(ranks, models)
    notes = [_note("clock_step", rank, evidence[rank], jump_text(jumps)) for rank, jumps in jumping.items()]
    for rank, drift_ppm in sorted(_drifts_ppm(ranks, models).items()):
        notes.append(_note("clock_drift", rank, evidence[rank], f"its clock drifts by {drift_ppm:+.1f} ppm"))
    named = {note.rank for note in notes}
    contradicted = {
        rank: off_ns for rank, off_ns in _contradicted(ranks, models, measured).items() if rank not in named
    }
    text = "its clock is {:+,.3f} ms off what the probe measured, or off the other clocks of its host"
    return [
        *notes,
        *(
            _note("clock_step", rank, evidence[rank], text.format(off_ns / 1e6))
            for rank, off_ns in sorted(contradicted.items())
        ),
    ]


def jump_text(jumps: Sequence[RankJump]) -> str:
    """Return what is said of a rank's clock: its largest jump, and how many there are."""
    largest = max(jumps, key=lambda jump: abs(jump.by_ns))
    or_more = " or more" if largest.at_least else ""
    by = f"{len(jumps)} times, by up to" if len(jumps) > 1 else "by"
    text = f"its clock jumps {by} {largest.by_ns / 1e6:+,.3f} ms{or_more}"
    if not largest.or_ranks:
        return text
    return f"{text}, or {_clocks_text(largest.or_ranks)} by {-largest.by_ns / 1e6:+,.3f} ms"


@lru_cache(maxsize=16)
def _clocks_text(ranks: frozenset[int]) -> str:
    return f"{'that' if len(ranks) == 1 else 'those'} of {ranks_text(ranks)}"


def _drifts_ppm(ranks: Sequence[RankSummary], models: Sequence[ClockModel]) -> dict[int, float]:
    """Return by how much clocks drift. If most seem to drift against the reference, it is the reference that does."""
    summaries = {summary.rank: summary for summary in ranks}
    drifts_ppm = {
        model.rank: model.drift_ppm or 0.0
        for model in models
        if model.method in _EVIDENCE and _drifts_notably(model, summaries[model.rank])
    }
    if len(drifts_ppm) > 1 and 2 * len(drifts_ppm) >= len(models):
        reference = min(model.rank for model in models if model.method != "none")
        return {reference: -float(np.median(list(drifts_ppm.values())))}
    return drifts_ppm


def _note(kind: str, rank: int, evidence: str, claim: str) -> Note:
    text = f"rank {rank}: {evidence} show that {claim}; comparisons over ranks correct for it"
    return Note(kind=kind, severity="warning", rank=rank, text=text)


def _contradicted(
    ranks: Sequence[RankSummary], models: Sequence[ClockModel], measured: Mapping[int, ClockModel]
) -> dict[int, int]:
    """Return how far clocks are off the measured ones, or off those of their machine, if that is more than the
    error.
    """
    by_machine: dict[str | None, list[tuple[int, int, int]]] = {}
    for summary, model in zip(ranks, models, strict=True):
        prior = measured[summary.rank]
        if model.method == "none" or (prior.method == "none" and summary.machine is None):
            continue
        difference_ns = model.offset_ns - prior.offset_ns
        error_ns = (model.error_ns or 0) + (prior.error_ns or 0)
        by_machine.setdefault(summary.machine if prior.method == "none" else None, []).append(
            (model.rank, difference_ns, error_ns)
        )
    result: dict[int, int] = {}
    for differences in by_machine.values():
        sorted_ns = sorted(difference_ns for _, difference_ns, _ in differences)
        usual_ns = sorted_ns[(len(sorted_ns) - 1) // 2] if len(differences) > 2 else differences[0][1]
        worst_ns = max(error_ns for _, _, error_ns in differences)
        result |= {
            rank: difference_ns - usual_ns
            for rank, difference_ns, _ in differences
            if abs(difference_ns - usual_ns) > _NOTABLE_NS + 2 * worst_ns
        }
    return result


def _drifts_notably(model: ClockModel, summary: RankSummary) -> bool:
    """Return whether a clock drifts fast, and far enough in the recording to matter."""
    begin_ns, end_ns = recorded_time(summary, model.at_ns)
    drift_ppm = abs(model.drift_ppm or 0.0)
    return drift_ppm >= _NOTABLE_DRIFT_PPM and drift_ppm * 1e-6 * (end_ns - begin_ns) >= _NOTABLE_NS
