"""Reports on simulated GPU jobs of every form of parallelism, healthy and with a defect: each statement is right.

`python -m benchmarks.studies.gpu_jobs` scores many more.
"""

from __future__ import annotations

import pytest

from benchmarks.studies.gpu_jobs.cases import GROUPS, Case
from benchmarks.studies.gpu_jobs.scoring import score

# Small jobs with tuning seeds, in which each defect is planted; those of even seeds are healthy.
SEEDS = {
    "ddp": (0, 1, 7, 9),
    "fsdp": (2, 5, 13),
    "tensor": (0, 3, 21),
    "pipeline-action": (2, 7, 9),
    "pipeline-microbatch": (2, 3),
    "pipeline-messages": (2, 3, 7, 9),
    "expert": (0, 3, 69),  # 69: two ranks exchange tokens, so the other one has fewer
    "expert-kernels": (2, 3, 45),
    "hybrid": (6, 9),
    "lost-kernels": (0, 1, 2, 3, 4),
    "lost-receives": (0,),
}


def test_every_group_has_jobs() -> None:
    assert SEEDS.keys() == GROUPS.keys()


# At every change the first two of each group: a healthy job and one with a defect.
JOBS = [
    pytest.param(group, seed, marks=[pytest.mark.long] * (place > 1))
    for group, seeds in SEEDS.items()
    for place, seed in enumerate(seeds)
]


@pytest.mark.parametrize(("group", "seed"), JOBS)
def test_all_statements_on_a_job_are_right(group: str, seed: int) -> None:
    scores = score(Case(group, seed))

    assert len(scores) >= 3
    assert {s.check: (s.seen, s.expected) for s in scores if s.verdict != "right"} == {}


def test_a_job_that_is_read_from_files_is_scored_alike() -> None:
    case = Case("ddp", 4)
    assert case.in_files

    assert score(case, files=True) == score(case)
