"""What a reader must know of the clocks of a run: jumps, drifts, contradictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import numpy as np

from tracekit.analysis.clocks.measured import recorded_time
from tracekit.model.clocks import ClockModel
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary

_NOTABLE_DRIFT_PPM = 10.0
_NOTABLE_NS = 10_000
_NOTABLE_JUMP_NS = 50_000
_EVIDENCE = {"collectives": "the ends of its collectives", "messages": "its messages"}

__all__ = ["clock_notes", "jump_sizes_ns", "jumping_clocks"]


def clock_notes(
    ranks: Sequence[RankSummary], models: Sequence[ClockModel], measured: Mapping[int, ClockModel]
) -> list[Note]:
    """Return notes about ranks whose clock jumps or drifts, or is not what was measured or what their host shows.

    If most ranks seem to jump or drift against the reference, it is the reference that does.
    """
    fitted = [model for model in models if model.method in _EVIDENCE]
    summaries = {summary.rank: summary for summary in ranks}
    claims = (
        (
            "clock_step",
            "its clock jumps by {:+,.3f} ms",
            {m.rank: _largest_jump_ns(m) / 1e6 for m in fitted if _jumps_notably(m)},
        ),
        (
            "clock_drift",
            "its clock drifts by {:+.1f} ppm",
            {m.rank: m.drift_ppm or 0.0 for m in fitted if _drifts_notably(m, summaries[m.rank])},
        ),
    )
    evidence = {model.rank: _EVIDENCE.get(model.method, _EVIDENCE["collectives"]) for model in models}
    notes = []
    for kind, text, by_rank in claims:
        if _is_of_reference(by_rank, models):
            reference = min(model.rank for model in models if model.method != "none")
            by_rank = {reference: -float(np.median(list(by_rank.values())))}
        notes += [_note(kind, rank, evidence[rank], text.format(value)) for rank, value in sorted(by_rank.items())]
    contradicted = {
        rank: off_ns
        for rank, off_ns in _contradicted(ranks, models, measured).items()
        if all(rank not in by_rank for _, _, by_rank in claims) and all(note.rank != rank for note in notes)
    }
    text = "its clock is {:+,.3f} ms off what the probe measured, or off the other clocks of its host"
    return [
        *notes,
        *(
            _note("clock_step", rank, evidence[rank], text.format(off_ns / 1e6))
            for rank, off_ns in sorted(contradicted.items())
        ),
    ]


def jumping_clocks(models: Sequence[ClockModel]) -> dict[int, int]:
    """Return the ranks whose clocks jump, each with a rank whose model shows the jumps.

    If most ranks seem to jump against the reference, it is the reference that does.
    """
    jumping = [model.rank for model in models if model.method in _EVIDENCE and _jumps_notably(model)]
    if _is_of_reference(jumping, models):
        return {min(model.rank for model in models if model.method != "none"): jumping[0]}
    return {rank: rank for rank in jumping}


def _is_of_reference(ranks: Collection[int], models: Sequence[ClockModel]) -> bool:
    return len(ranks) > 1 and 2 * len(ranks) >= len(models)


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


def jump_sizes_ns(model: ClockModel) -> list[int]:
    """Return by how much a clock jumps ahead at each of its jumps."""
    offsets = [(model.offset_ns, model.at_ns), *((jump.offset_ns, jump.at_ns) for jump in model.jumps)]
    drift = (model.drift_ppm or 0.0) * 1e-6
    by_ns = []
    for (was_ns, was_at_ns), (is_ns, at_ns) in pairwise(offsets):
        elapsed_ns = (at_ns - is_ns) - (was_at_ns - was_ns)
        by_ns.append(is_ns - was_ns - round(drift * elapsed_ns))
    return by_ns


def _largest_jump_ns(model: ClockModel) -> int:
    return max(jump_sizes_ns(model), key=abs)


def _jumps_notably(model: ClockModel) -> bool:
    """Return whether a clock jumps itself. The reference's jumps leave small traces in the models of other ranks."""
    return bool(model.jumps) and abs(_largest_jump_ns(model)) >= _NOTABLE_JUMP_NS


def _drifts_notably(model: ClockModel, summary: RankSummary) -> bool:
    """Return whether a clock drifts fast, and far enough in the recording to matter."""
    begin_ns, end_ns = recorded_time(summary, model.at_ns)
    drift_ppm = abs(model.drift_ppm or 0.0)
    return drift_ppm >= _NOTABLE_DRIFT_PPM and drift_ppm * 1e-6 * (end_ns - begin_ns) >= _NOTABLE_NS
