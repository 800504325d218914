"""Scores jobs: simulates each, analyses it and runs all checks, in several processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import tracekit
from benchmarks.gpu_jobs import SimulatedJob, simulate
from benchmarks.studies.gpu_jobs.cases import Case
from benchmarks.studies.gpu_jobs.checks import TOPICS, TOPICS_OF_LOSSES
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome
from tracekit.report.report import Report


@dataclass(frozen=True)
class Score:
    """The outcome of one check of one job."""

    group: str
    seed: int
    cause: str | None
    topic: str
    check: str
    verdict: str
    seen: str
    expected: str


def scores(cases: Iterable[Case], *, files: bool, jobs: int) -> Iterator[list[Score]]:
    """Yield the scores of each case, in the order of the cases. With `files` some jobs are read from files."""
    if jobs == 1:
        for case in cases:
            yield score(case, files=files)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as processes:
        tasks = [processes.submit(score, case, files=files) for case in cases]
        for task in tasks:
            yield task.result()


def score(case: Case, *, files: bool = False) -> list[Score]:
    """Return the outcome of each check of a job."""
    evidence = Evidence(simulate(case.spec()), _report_of_files if files and case.in_files else SimulatedJob.report)
    return [
        Score(case.group, case.seed, case.cause, topic, check.__name__, outcome.verdict, outcome.seen, outcome.expected)
        for topic, check, outcome in check_all(evidence)
    ]


def check_all(evidence: Evidence) -> Iterator[tuple[str, Check, Outcome]]:
    """Yield the outcomes of all checks that apply. A check that fails is wrong: the report lacks what it reads."""
    topics = TOPICS if evidence.spec.missing is None else TOPICS_OF_LOSSES
    for topic, checks in topics.items():
        for check in checks:
            try:
                outcome = check(evidence)
            except Exception as error:
                outcome = Outcome("wrong", f"{type(error).__name__}: {error}", "a report to compare")
            if outcome is not None:
                yield topic, check, outcome


def _report_of_files(job: SimulatedJob) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        return tracekit.analyze(job.write(Path(folder)))
