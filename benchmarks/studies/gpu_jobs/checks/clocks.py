"""Checks of clocks: the offsets between ranks, and the error that is claimed of them."""

from __future__ import annotations

import numpy as np

from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, abstained, right_if

_ROUNDING_NS = 1_000
_USEFUL_NS, _USEFUL_SHARE = 50_000, 0.01  # a claimed error above these, in ns and of the step, is of no use


def clocks_within_their_error(evidence: Evidence) -> Outcome | None:
    """The clocks of each two ranks agree within their claimed errors, at nine moments from the begin to the end.

    When a clock jumped is known to lie between two operations with other machines. Moments between these are left out.
    """
    clocks = {clock.rank: clock for clock in evidence.run.clocks}
    if evidence.spec.ranks < 2:
        return None
    if any(clock.method == "none" for clock in clocks.values()) and evidence.spec.hosts > 1:
        return abstained("clocks of all ranks", "clocks are not known")
    steps = evidence.truth.steps
    first_ns, last_ns = min(step.start_ns for step in steps), max(step.end_ns for step in steps)
    reference, worst = min(clocks), (-np.inf, "", "")
    jumps = {host: _around_jump_ns(evidence, host) for host in range(evidence.spec.hosts)}
    for rank, clock in clocks.items():
        begin_ns, end_ns = jumps[evidence.spec.host_of(rank)]
        moments = np.linspace(first_ns, last_ns, 9).astype(np.int64)
        for true_ns in moments[(moments <= begin_ns) | (moments >= end_ns)].tolist():
            seen_ns = clock.moment_to_run(evidence.shown_ns(rank, true_ns))
            off_ns = abs(seen_ns - clocks[reference].moment_to_run(evidence.shown_ns(reference, true_ns)))
            claimed_ns = (clock.error_ns or 0) + (clocks[reference].error_ns or 0)
            if off_ns - claimed_ns > worst[0]:
                moment = f"rank {rank} at {(true_ns - first_ns) / (last_ns - first_ns):.0%} of the job"
                worst = (off_ns - claimed_ns, f"{moment}: {off_ns:,} ns off", f"at most {claimed_ns:,} ns")
    return right_if(worst[0] <= _ROUNDING_NS, *worst[1:])


def claimed_errors_are_useful(evidence: Evidence) -> Outcome | None:
    """The claimed error of the clocks is small enough to compare ranks."""
    if evidence.spec.ranks < 2:
        return None
    most_ns = max(_USEFUL_NS, _USEFUL_SHARE * evidence.truth.mean_step_ns)
    claimed_ns = max(clock.error_ns or 0 for clock in evidence.run.clocks)
    return right_if(claimed_ns <= most_ns, f"{claimed_ns:,} ns", f"at most {most_ns:,.0f} ns")


CHECKS: tuple[Check, ...] = (clocks_within_their_error, claimed_errors_are_useful)


def _around_jump_ns(evidence: Evidence, host: int) -> tuple[int, int]:
    """Return between which moments it can be known that a machine's clock jumped; twice the same if it did not.

    These are the ends of the last operation before the jump, and of the first after it, of a rank of the machine with a
    rank of another: of those ranks that have such operations, the one that knows it least.
    """
    spec, duration_ns = evidence.spec, evidence.job.finished.duration_ns
    jump_ns = round(spec.clocks.jump_at * duration_ns)
    if host >= len(spec.clocks.jump_us) or not spec.clocks.jump_us[host]:
        return jump_ns, jump_ns
    meetings = [(op.members, max(op.end_ns)) for op in evidence.truth.operations]
    meetings += [((message.source, message.destination), message.end_ns) for message in evidence.truth.messages]
    known = []
    for rank in range(spec.ranks):
        ends_ns = [
            end_ns
            for members, end_ns in meetings
            if rank in members and any(spec.host_of(member) != host for member in members)
        ]
        if spec.host_of(rank) == host and ends_ns:
            before = [end_ns for end_ns in ends_ns if end_ns <= jump_ns]
            after = [end_ns for end_ns in ends_ns if end_ns > jump_ns]
            known.append((max(before, default=0), min(after, default=duration_ns)))
    # What a clock shows that is set back, it shows twice: before and after.
    twice_ns = round(1000 * max(-spec.clocks.jump_us[host], 0.0))
    begin_ns = min((begin for begin, _ in known), default=0)
    end_ns = max((end for _, end in known), default=duration_ns)
    return min(begin_ns, jump_ns - twice_ns), max(end_ns, jump_ns + twice_ns)
