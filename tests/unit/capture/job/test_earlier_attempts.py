"""The attempt before this one, found on the disk: by the agent, else by the user's id and the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.capture.job.elastic import AGENT_START_NS, LAUNCH, S, attempt_of, leave_progress
from tracekit.capture.job.run_agreement import EarlierAttempt, find_earlier_attempt

RUN = f"myjob-20260101T000000Z-{LAUNCH.run_suffix(0)}"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The first attempt of agent a's job, which lived for 10 s."""
    leave_progress(tmp_path, RUN, LAUNCH, attempt=0, last_sign_s=10)
    return tmp_path


def test_the_next_worker_of_the_same_agent_continues_the_run(runs: Path) -> None:
    restarted = attempt_of(LAUNCH, 1, at_s=12)

    assert find_earlier_attempt(runs, restarted, 0) == EarlierAttempt(run_id=RUN, attempt=0)


def test_attempts_are_numbered_on_even_if_no_failure_was_counted(runs: Path) -> None:
    leave_progress(runs, RUN, attempt_of(LAUNCH, 1, at_s=12), attempt=1, last_sign_s=20)

    found = find_earlier_attempt(runs, attempt_of(LAUNCH, 2, at_s=22), 0)

    assert found == EarlierAttempt(run_id=RUN, attempt=1)


def test_rank_0_of_another_agent_continues_the_run_that_died_before_it_started(runs: Path) -> None:
    """Agent b joined 5 s after agent a had started, and its worker started when that of a was dead."""
    joined = attempt_of(replace(LAUNCH, agent="agent-b"), 1, at_s=12, agent_start_ns=AGENT_START_NS + 5 * S)

    assert find_earlier_attempt(runs, joined, 0) == EarlierAttempt(run_id=RUN, attempt=0)


@pytest.mark.parametrize(
    ("agent_start_s", "worker_start_s"),
    [
        (86_400, 86_402),  # another day
        (5, 8),  # at the same time: the first attempt still lives when this one's worker starts
    ],
)
def test_an_unrelated_job_under_the_same_id_is_another_run(runs: Path, agent_start_s: int, worker_start_s: int) -> None:
    agent_start_ns = AGENT_START_NS + agent_start_s * S
    other = attempt_of(replace(LAUNCH, agent="agent-c"), 1, at_s=worker_start_s, agent_start_ns=agent_start_ns)

    assert find_earlier_attempt(runs, other, 0) is None


def test_a_second_program_of_one_worker_is_no_attempt_of_the_first(runs: Path) -> None:
    assert find_earlier_attempt(runs, replace(LAUNCH, start_ns=AGENT_START_NS + 20 * S), 0) is None


def test_another_probe_has_a_run_of_its_own(runs: Path) -> None:
    assert find_earlier_attempt(runs, replace(attempt_of(LAUNCH, 1, at_s=12), elastic_id="none"), 1) is None


def test_a_job_that_cannot_be_restarted_looks_for_nothing(runs: Path) -> None:
    assert find_earlier_attempt(runs, replace(attempt_of(LAUNCH, 1, at_s=12), may_restart=False), 0) is None
    assert find_earlier_attempt(runs, None, 0) is None
