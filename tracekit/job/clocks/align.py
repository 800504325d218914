"""How far each rank's clock is from the run's, which ranks share a clock, and what a reader must know of the clocks.

The run's clock is that of the lowest rank whose clock is known. What the probe measured holds, and that ranks of one
host share a clock, unless the ends of collectives contradict it. CPU ranks of one boot of a host, whose id the probe
records, share a clock whatever these ends show. The other clocks are fitted to these ends. Ranks that no collective
joins are joined by messages. Where wall clocks may be one clock, as far as these show, they are taken for one.

A file of the probe names its host, and so do some other files. Else process ids tell: a launcher starts the processes
of a host one after the other, and the kernel numbers them in that order. Hosts number their processes each for itself.

Notes tell of jumps, drifts and contradictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tracekit.job.clocks.by_collectives import FittedClocks, UnfittedClock, fit_to_collectives
from tracekit.job.clocks.by_messages import join_by_messages
from tracekit.job.clocks.collective_samples import CollectiveSamples, relative
from tracekit.job.clocks.jumps import with_comparable_rates, with_jumps
from tracekit.job.clocks.measured import probe_clock, recorded_time
from tracekit.model.communication import MatchedGroup, MatchedMessages
from tracekit.model.notes import Note
from tracekit.model.run import ClockModel, ranks_text
from tracekit.model.summary import RankSummary

# Of the times in a file against the clock of the host. The profiler converts the device's.
_RESOLUTION_NS = {"cpu": 1_000, "gpu": 10_000}

_MOST_BETWEEN = 4  # process ids from one rank to the next: a launcher may start a thread or a helper for each

_NOTABLE_DRIFT_PPM = 10.0
_NOTABLE_NS = 10_000
_EVIDENCE = {"collectives": "the ends of its collectives", "messages": "its messages"}


def align(
    ranks: Sequence[RankSummary],
    collectives: Sequence[MatchedGroup] = (),
    messages: MatchedMessages | None = None,
) -> tuple[tuple[ClockModel, ...], list[Note]]:
    """Return a clock model for each of the `ranks` (ascending), and notes about clocks.

    All models are against the lowest rank whose clock is known. `messages` join ranks that nothing else joins.
    """
    hosts = host_of_ranks([summary for summary in ranks if summary.unmeasured is None])
    clocks = [
        UnfittedClock(
            rank=summary.rank,
            measured=probe_clock(summary),
            host=hosts.get(summary.rank),
            recorded_ns=recorded_time(summary, summary.first_event_ns or 0),
            resolution_ns=_RESOLUTION_NS[summary.device],
            is_of_boot=summary.host_id is not None and summary.device == "cpu",
        )
        for summary in ranks
    ]
    samples = [
        group_samples for group in collectives if (group_samples := CollectiveSamples.of(ranks, group)) is not None
    ]
    fitted = fit_to_collectives(clocks, samples)
    if messages is not None:
        models, frame = join_by_messages(ranks, fitted.models, fitted.frame, messages)
        fitted = replace(fitted, models=models, frame=frame)
    aligned = with_comparable_rates(_as_one_wall_clock(_on_reference(ranks, fitted)))
    aligned = with_jumps(aligned, samples, hosts)
    named = {summary.rank: summary.machine for summary in ranks if summary.machine is not None}
    return aligned, clock_notes(ranks, aligned, {clock.rank: clock.measured for clock in clocks}, named)


def _on_reference(ranks: Sequence[RankSummary], fitted: FittedClocks) -> list[ClockModel]:
    """Return a model against the reference, the lowest rank whose clock is known, for each of the ranks."""
    models, frame = fitted.models, fitted.frame
    joined = {frame[rank] for rank, model in models.items() if frame[rank] != rank}
    known = [rank for rank, model in models.items() if model.method != "none" or rank in joined]
    if not known:
        return [models[summary.rank] for summary in ranks]
    reference = min(known)
    in_frame = {rank: model for rank, model in models.items() if frame[rank] == frame[reference]}
    root = in_frame.get(frame[reference])
    if root is not None and root.method == "none":  # it was not measured, so it is the frame itself
        methods = {model.method for model in in_frame.values()}
        in_frame[root.rank] = replace(
            root,
            method=next(method for method in ("collectives", "messages", "host") if method in methods),
            at_ns=models[reference].at_ns - models[reference].offset_ns,
            drift_ppm=0.0,
            error_ns=fitted.root_error_ns.get(root.rank, 0),
        )
    return [
        relative(in_frame[summary.rank], in_frame[reference])
        if summary.rank in in_frame
        else ClockModel(rank=summary.rank, method="none")  # it is known against others, but not against the reference
        for summary in ranks
    ]


def _as_one_wall_clock(models: Sequence[ClockModel]) -> list[ClockModel]:
    """Return the models; offsets that are 0 within their errors become 0, if those of all fitted clocks are."""
    fitted = [model for model in models if model.method in ("collectives", "messages")]
    reference_error_ns = next((model.error_ns or 0 for model in models if model.method != "none"), 0)
    if any(model.drift_ppm or abs(model.offset_ns) > (model.error_ns or 0) + reference_error_ns for model in fitted):
        return list(models)
    return [
        replace(model, method="wall", offset_ns=0, error_ns=(model.error_ns or 0) + abs(model.offset_ns))
        if model.method in ("collectives", "messages")
        else model
        for model in models
    ]


def host_of_ranks(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return what identifies the host of each rank whose host is known. `ranks` are in ascending order.

    Ranks without a named host share one if their process ids follow each other in the order of ranks.
    """
    hosts = {summary.rank: summary.machine for summary in ranks if summary.machine is not None}
    unnamed = [summary for summary in ranks if summary.machine is None and summary.process_id is not None]
    for one, other in pairwise(unnamed):
        if 0 < (other.process_id or 0) - (one.process_id or 0) <= _MOST_BETWEEN:
            hosts.setdefault(one.rank, f"the host of rank {one.rank}")
            hosts[other.rank] = hosts[one.rank]
    return hosts


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
        notes.append(Note(id="clock-step", severity="warning", text=text))
    for rank, drift_ppm in sorted(_drifts_ppm(ranks, models).items()):
        notes.append(_note("clock-drift", rank, evidence[rank], f"its clock drifts by {drift_ppm:+.1f} ppm"))
    text = "its clock is {:+,.3f} ms off what the probe measured, or off the other clocks of its host"
    contradicted = _contradicted(models, measured, hosts)
    return [
        *notes,
        *(
            _note("clock-step", rank, evidence[rank], text.format(off_ns / 1e6))
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
    return Note(id=kind, severity="warning", rank=rank, text=text)


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
