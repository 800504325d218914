"""Training of several ranks over NCCL, or RCCL, each job as it is and with a planted delay.

Where there are fewer devices than ranks, ranks share them. Their kernels then run in turns, and what they send goes
over sockets: slowly, and truly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.gpu.recordings import DeviceRecording
from tests.integration.recorded import notes_of

pytestmark = pytest.mark.gpu

Train = Callable[..., DeviceRecording]
Measured = Callable[..., None]

DELAY_MS = 20
# Nothing communicates by kernels of another library.
NCCL_KERNEL = re.compile(r"nccl|rccl", re.IGNORECASE)
NO_COMMUNICATION = {"compute", "copy", "unclassified", "unknown"}
SLOW_RANK = ("--slow-rank", "1", "--delay-ms", str(DELAY_MS))
SHARDED = {"all_gather", "reduce_scatter"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A probe and its options. `kinds`: of its communication; None if that is a library's affair."""

    name: str
    options: tuple[str, ...] = ()
    delay: tuple[str, ...] = SLOW_RANK
    ranks: int = 2
    strategies: list[str]
    kinds: set[str] | None = None

    def __str__(self) -> str:
        return "-".join([self.name, *(option.strip("-") for option in self.options)])


WITH_SLOW_RANK = [
    Job(name="ddp", strategies=["ddp"], kinds={"all_reduce"}),
    Job(name="fsdp", options=("--fsdp", "1"), strategies=["fsdp1"], kinds=SHARDED),
    Job(name="fsdp", options=("--fsdp", "2"), strategies=["fsdp2"], kinds=SHARDED),
    Job(name="tensor", strategies=["tp"]),
    Job(name="tensor", options=("--manual",), strategies=["tp"], kinds={"all_reduce", "all_gather"}),
    Job(name="compiled", options=("--backend", "inductor"), strategies=["ddp"]),
    Job(name="accelerate_loop", strategies=["ddp"]),
    Job(name="lightning_trainer", strategies=["ddp"]),
    Job(name="transformers_trainer", strategies=["ddp"]),
    Job(name="hybrid", ranks=4, strategies=["fsdp2", "tp"]),
]
SLOW_STAGE = ("--slow-stage", "1")
PIPELINES = [  # of stages that are equally long
    Job(name="pipeline", options=("--schedule", schedule, "--sleep-compute"), delay=SLOW_STAGE, strategies=["pp"])
    for schedule in ("1f1b", "gpipe", "manual")
]
OTHERS = [
    Job(name="expert", options=("--sleep-compute",), strategies=["ep"], kinds={"all_to_all", "all_reduce"}),
    Job(
        name="context",
        options=("--method", "gather", "--sleep-compute"),
        strategies=["cp"],
        kinds=SHARDED | {"all_reduce"},
    ),
]


def require_understood(recording: DeviceRecording, job: Job) -> None:
    """Check that the report knows what the job is, what it communicates and to what that belongs."""
    result = recording.result
    kinds = {row["kind"] for row in result["communication"]}
    assert result["run"]["strategies"] == job.strategies
    assert result["run"]["ranks"] == list(range(job.ranks))
    assert job.kinds in (None, kinds)
    assert {use.kind for use in recording.uses if NCCL_KERNEL.search(use.function)}.isdisjoint(NO_COMMUNICATION)
    # Ranks that take turns on a device are late, and no clock was set.
    assert notes_of(result, "unlinked", "clock-step", "clock-drift", "device-clock") == []


@pytest.mark.parametrize("job", [*WITH_SLOW_RANK, *PIPELINES, *OTHERS], ids=str)
def test_a_job_is_understood_and_names_no_rank(job: Job, train: Train, measured: Measured) -> None:
    recording = train(job.name, *job.options, ranks=job.ranks)
    row = recording.require_whole()

    require_understood(recording, job)
    assert 0 < row["exposed_comm_ns"] <= row["comm_ns"]
    named = [each for each in recording.result["findings"] if each["rank"] is not None and each["certainty"] == "sure"]
    assert named == []
    measured(comm_ms=row["comm_ns"] / 1e6, exposed_ms=row["exposed_comm_ns"] / 1e6)


@pytest.mark.parametrize("job", WITH_SLOW_RANK, ids=str)
def test_a_planted_slow_rank_is_named(job: Job, train: Train, measured: Measured) -> None:
    recording = train(job.name, *job.options, *job.delay, ranks=job.ranks)
    recording.require_whole()
    stragglers = recording.result["stragglers"]

    require_understood(recording, job)
    assert (stragglers["rank"], stragglers["cause"]) == (1, "compute")
    found_ms = stragglers["caused_delay_ns"] / 1e6
    assert found_ms >= 0.5 * DELAY_MS
    measured(planted_ms=DELAY_MS, found_ms=found_ms)


@pytest.mark.parametrize("job", PIPELINES, ids=str)
def test_a_planted_slow_stage_is_named(job: Job, train: Train, measured: Measured) -> None:
    recording = train(job.name, *job.options, *job.delay, ranks=job.ranks)
    recording.require_whole()
    result = recording.result

    require_understood(recording, job)
    (finding,) = [finding for finding in result["findings"] if finding["rank"] is not None]

    assert [edge["sends"] == edge["receives"] == edge["joined"] > 0 for edge in result["point_to_point"]] == [True] * 2
    assert (finding["rank"], finding["evidence"]["stage"]) == (1, 1)
    measured(times_of_other_stages=finding["evidence"]["factor"])


def test_each_bucket_of_ddp_is_reduced_once_a_step(train: Train) -> None:
    recording = train("ddp", ranks=2)
    result = recording.result

    assert len(result["buckets"]) == 2 * recording.steps * len(result["bucket_map"])
    assert {use.kind for use in recording.uses if NCCL_KERNEL.search(use.function)} == {"all_reduce"}
