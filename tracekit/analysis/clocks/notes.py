"""What a reader must know of the clocks of a run: jumps, drifts, contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracekit.analysis.clocks.measured import recorded_time
from tracekit.model.clocks import ClockModel
from tracekit.model.notes import Note
from tracekit.model.ranks import ranks_text
from tracekit.model.summary import RankSummary

_NOTABLE_DRIFT_PPM = 10.0
_NOTABLE_NS = 10_000
_EVIDENCE = {"collectives": "the ends of its collectives", "messages": "its messages"}

__all__ = ["clock_notes"]


def clock_notes(
    ranks: Sequence[RankSummary],
    models: Sequence[ClockModel],
    measured: Mapping[int, ClockModel],
    hosts: Mapping[int, str],
) -> list[Note]:
    """Return notes about ranks whose clock drifts, is not what was measured or what their host shows, or may jump."""
    evidence = {model.rank: _EVIDENCE.get(model.method, _EVIDENCE["collectives"]) for model in models}
    notes = []
    unclear = {model.rank: model.jump_ns for model in models if model.jump_ns is not None and model.method == "none"}
    if unclear:
        by_ms = max(map(abs, unclear.values())) / 1e6
        text = (
            f"the ends of collectives show that clocks of {ranks_text(sorted(unclear))} jump by {by_ms:,.3f} ms within "
            "the recording, and not which of them do: times are not compared over ranks"
        )
        notes.append(Note(kind="clock_step", severity="warning", text=text))
    for rank, drift_ppm in sorted(_drifts_ppm(ranks, models).items()):
        notes.append(_note("clock_drift", rank, evidence[rank], f"its clock drifts by {drift_ppm:+.1f} ppm"))
    text = "its clock is {:+,.3f} ms off what the probe measured, or off the other clocks of its host"
    contradicted = _contradicted(models, measured, hosts)
    return [
        *notes,
        *(
            _note("clock_step", rank, evidence[rank], text.format(off_ns / 1e6))
            for rank, off_ns in sorted(contradicted.items())
            if rank not in {note.rank for note in notes}
        ),
    ]


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
    models: Sequence[ClockModel], measured: Mapping[int, ClockModel], hosts: Mapping[int, str]
) -> dict[int, int]:
    """Return how far clocks are off the measured ones, or off those of their host, if that is more than the error."""
    by_host: dict[str | None, list[tuple[int, int, int]]] = {}
    for model in models:
        prior = measured[model.rank]
        if model.method == "none" or (prior.method == "none" and model.rank not in hosts):
            continue
        difference_ns = model.offset_ns - prior.offset_ns
        error_ns = (model.error_ns or 0) + (prior.error_ns or 0)
        host = hosts[model.rank] if prior.method == "none" else None
        by_host.setdefault(host, []).append((model.rank, difference_ns, error_ns))
    result: dict[int, int] = {}
    for differences in by_host.values():
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
