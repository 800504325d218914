"""Checks of steps: their windows, and what they consist of."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gpu_jobs import RankStep
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, compare_each, right_if

_ROUNDING_NS = 2_000  # traces have times in microseconds


def steps_are_complete(evidence: Evidence) -> Outcome | None:
    """All steps of all ranks are there and complete."""
    expected = {(step.rank, step.step) for step in evidence.truth.steps}
    seen = {(s.rank, step.step) for s in evidence.run.ranks for step in s.steps if step.complete}
    return right_if(seen == expected, f"{len(seen)} complete steps", f"{len(expected)} complete steps")


def steps_begin_when_they_do(evidence: Evidence) -> Outcome | None:
    """Each window begins at the later of the step's start on the host and the end of compute launched before."""
    origin_ns, steps = evidence.shown_ns(0, 0), _steps_without_jump(evidence)
    expected = {
        (step.rank, step.step): evidence.shown_ns(step.rank, step.start_ns) - origin_ns for step in steps.values()
    }
    seen = {
        (s.rank, step.step): step.start_ns - origin_ns
        for s in evidence.run.ranks
        for step in s.steps
        if (s.rank, step.step) in steps
    }
    return compare_each(seen, expected, within=_ROUNDING_NS)


def steps_last_as_long(evidence: Evidence) -> Outcome | None:
    """Each window is as long as the step."""
    return _compare_parts(evidence, ("step_ns",))


def parts_of_steps(evidence: Evidence) -> Outcome | None:
    """Compute, exposed communication, exposed copies and idle time of each step."""
    return _compare_parts(evidence, ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"))


def communication_of_steps(evidence: Evidence) -> Outcome | None:
    """How long each step communicates, and how much of that compute hides."""
    return _compare_parts(evidence, ("comm_ns", "overlapped_comm_ns"))


CHECKS: tuple[Check, ...] = (
    steps_are_complete,
    steps_begin_when_they_do,
    steps_last_as_long,
    parts_of_steps,
    communication_of_steps,
)


def _compare_parts(evidence: Evidence, parts: Sequence[str]) -> Outcome:
    """Compare parts of each step of each rank. They may be off by what the clock drifts in the step."""
    expected, within, steps = {}, {}, _steps_without_jump(evidence)
    for step in steps.values():
        for part in parts:
            key = (step.rank, step.step, part)
            expected[key] = step.end_ns - step.start_ns if part == "step_ns" else getattr(step, part)
            within[key] = _ROUNDING_NS + evidence.clock_change_ns(step.rank, step.start_ns, step.end_ns)
    seen = {
        (s.rank, step.step, part): getattr(step, part) for s in evidence.run.ranks for step in s.steps for part in parts
    }
    return compare_each({key: seen[key] for key in expected if key in seen}, expected, within=within)


def _steps_without_jump(evidence: Evidence) -> dict[tuple[int, int], RankStep]:
    return {(step.rank, step.step): step for step in evidence.truth.steps if not evidence.jumps_near(step)}
