"""Checks of recordings that lack records: what is lost is noticed, and what is left stays right."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from benchmarks.gpu_jobs import Message, Missing
from benchmarks.gpu_jobs.losses import recorded
from benchmarks.studies.gpu_jobs.accusations import accusations
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, compare_each, right_if

_ROUNDING_NS = 5_000
_PARTS = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")


def steps_without_kernels_are_incomplete(evidence: Evidence) -> Outcome | None:
    """A step is complete if no kernel that was launched in it is lost."""
    if _missing(evidence).kernels_after is None:
        return None
    expected = _whole_steps(evidence)
    seen = {(s.rank, step.step) for s in evidence.run.ranks for step in s.steps if step.complete}
    return right_if(
        seen == expected,
        f"complete by mistake: {sorted(seen - expected)[:3]}, incomplete by mistake: {sorted(expected - seen)[:3]}",
        f"{len(expected)} complete steps",
    )


def steps_that_are_left_are_right(evidence: Evidence) -> Outcome | None:
    """The parts of complete steps are right."""
    whole = _whole_steps(evidence)
    expected = {
        (step.rank, step.step, part): getattr(step, part)
        for step in evidence.truth.steps
        if (step.rank, step.step) in whole
        for part in _PARTS
    }
    seen = {
        (s.rank, step.step, part): getattr(step, part)
        for s in evidence.run.ranks
        for step in s.steps
        if (s.rank, step.step) in whole
        for part in _PARTS
    }
    return compare_each(seen, expected, within=_ROUNDING_NS) if expected else None


def loss_is_noted(evidence: Evidence) -> Outcome | None:
    """There is a note or a finding that warns of what is missing."""
    missing = _missing(evidence)
    if missing.receives:
        return None  # a few records of many; the tables of messages count them
    notes = [note.text for note in evidence.run.notes if note.severity != "info"]
    return right_if(bool(notes), "; ".join(notes) or "no note", f"a warning about ranks {missing.ranks}")


def no_all_clear(evidence: Evidence) -> Outcome | None:
    """The report does not say that nothing stands out where whole ranks lack their kernels."""
    if _missing(evidence).kernels_after != 0:
        return None
    clear = [finding.text for finding in evidence.report.findings if "nothing stands out" in finding.text]
    return right_if(not clear, clear, "no all-clear")


def nobody_is_blamed(evidence: Evidence) -> Outcome | None:
    """Nobody is blamed for what is only lost."""
    blamed = accusations(evidence)
    return right_if(not blamed, "; ".join(f"{a.what} {a.ranks}: {a.text}" for a in blamed) or "nobody", "nobody")


def other_messages_stay_matched(evidence: Evidence) -> Outcome | None:
    """Messages of steps without a loss are all matched, and no message is matched to another one's other side."""
    missing = _missing(evidence)
    if not missing.receives:
        return None
    lost = _steps_with_losses(evidence)
    by_edge: dict[tuple[int, int, int], list[Message]] = defaultdict(list)
    for message in sorted(evidence.truth.messages, key=lambda m: m.end_ns):
        by_edge[message.source, message.destination, message.step].append(message)
    matched, of_rank = evidence.run.messages, {s.rank: s.messages for s in evidence.run.ranks}
    wrong = []
    for (source, destination, step), messages in by_edge.items():
        here = np.flatnonzero(
            (matched.source == source) & (matched.destination == destination) & (matched.step == step)
        )
        if (destination, step) not in lost and len(here) != len(messages):
            wrong.append(f"{len(here)} of {len(messages)} from {source} to {destination} in step {step}")
        ends_ns = (
            of_rank[source].end_ns[matched.send[here]] - evidence.shown_ns(source, messages[0].end_ns),
            of_rank[destination].end_ns[matched.recv[here]] - evidence.shown_ns(destination, messages[0].end_ns),
        )
        apart = int((np.abs(ends_ns[0] - ends_ns[1]) > _ROUNDING_NS).sum())
        if apart:
            wrong.append(f"{apart} wrong pairs from {source} to {destination} in step {step}")
    return right_if(not wrong, f"{len(wrong)} wrong: {wrong[:3]}", f"{len(by_edge)} right, {len(lost)} with losses")


CHECKS: tuple[Check, ...] = (
    steps_without_kernels_are_incomplete,
    steps_that_are_left_are_right,
    loss_is_noted,
    no_all_clear,
    nobody_is_blamed,
    other_messages_stay_matched,
)


def _missing(evidence: Evidence) -> Missing:
    missing = evidence.spec.missing
    assert missing is not None
    return missing


def _whole_steps(evidence: Evidence) -> set[tuple[int, int]]:
    """Return the steps, by rank, none of whose kernels is lost."""
    return {(step.rank, step.step) for step in evidence.truth.steps} - _steps_with_losses(evidence)


def _steps_with_losses(evidence: Evidence) -> set[tuple[int, int]]:
    """Return the steps, by rank, some of whose kernels are lost."""
    missing, finished = _missing(evidence), evidence.job.finished
    lost: set[tuple[int, int]] = set()
    for rank in missing.ranks:
        left = set() if missing.files else {id(kernel) for kernel in recorded(finished, rank).kernels}
        lost |= {(rank, kernel.step) for kernel in finished.kernels_of[rank] if id(kernel) not in left}
    return lost
