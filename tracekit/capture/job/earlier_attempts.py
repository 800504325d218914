"""Finds the attempt of this job before this one by what it left on the disk, where the job's store is new.

It is the newest attempt of a run that this agent launched with another worker process. Where rank 0 has moved to
another agent, it is that of a run with the same id, chosen by the user, which lived after this agent had started and
was dead when this process started. A run of another day under the same id ended before this agent started; one at the
same time still lives.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from tracekit.capture.job.elastic_launch import ElasticLaunch
from tracekit.capture.output.places import newest_attempt
from tracekit.model.metadata import PROGRESS_SUFFIX, Progress

_LATEST_RUNS = 8  # of one id; there may be hundreds

__all__ = ["EarlierAttempt", "find_earlier_attempt", "is_name_taken"]


@dataclass(frozen=True, kw_only=True)
class EarlierAttempt:
    """The newest attempt of the run that this job belongs to."""

    run_id: str
    attempt: int


def find_earlier_attempt(path: Path, launch: ElasticLaunch | None, number: int) -> EarlierAttempt | None:
    """Return the attempt before this one below `path`; None if there is none or it cannot be known.

    number: which probe of the process this is.
    """
    if launch is None or not launch.may_restart or not launch.agent:
        return None
    with contextlib.suppress(OSError):
        of_agent = list(path.glob(f"*-{launch.run_suffix(number)}"))
        named = sorted(path.glob(f"{launch.run_prefix}*"), reverse=True) if launch.run_prefix else []
        for run in [*of_agent, *named[:_LATEST_RUNS]]:
            attempt = newest_attempt(run)
            if attempt is None:
                continue
            progress = _any_progress(run / f"attempt-{attempt}")
            if run in of_agent:
                is_earlier = progress is None or progress.header.worker != launch.worker
            else:
                is_earlier = progress is not None and _precedes(progress, launch)
            if is_earlier:
                return EarlierAttempt(run_id=run.name, attempt=attempt)
    return None


def is_name_taken(path: Path, launch: ElasticLaunch, number: int) -> bool:
    """Return whether a run has the name that this launch would give it."""
    with contextlib.suppress(OSError):
        return any(path.glob(f"*-{launch.run_suffix(number)}"))
    return False


def _precedes(progress: Progress, launch: ElasticLaunch) -> bool:
    if launch.agent_start_ns is None or launch.start_ns is None or progress.header.elastic_id != launch.elastic_id:
        return False
    return launch.agent_start_ns < progress.last_sign_ns < launch.start_ns


def _any_progress(attempt: Path) -> Progress | None:
    """Return the progress of any rank."""
    for file in attempt.rglob(f"rank-*{PROGRESS_SUFFIX}"):
        with contextlib.suppress(OSError, ValueError):
            return Progress.parse(file.read_bytes())
    return None
