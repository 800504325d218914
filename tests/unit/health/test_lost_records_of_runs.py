"""A rank that lost device records: it is not compared, the other ranks are, and nobody is blamed for the loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_jobs import JobSpec, Missing, SimulatedJob, simulate, spec_of
from benchmarks.gpu_jobs.rank import Rank
from benchmarks.gpu_jobs.strategies.model import Loop, steps
from tests.builders import TraceBuilder
from tracekit.loading.load import load
from tracekit.model.table import records
from tracekit.render.json_result import result_dict
from tracekit.report.report import Report, analyze

STEPS = range(3, 9)  # as the simulator numbers them


def job_with_losses(lossy: int, *, slow: int | None, lost_after: float = 0.0) -> SimulatedJob:
    """Return four ranks on two hosts. `slow` computes 100 us longer a step. `lossy` has no device records after a share
    of the recording.
    """

    def train(rank: Rank) -> Loop:
        for _ in steps(rank):
            for _layer in range(4):
                rank.compute("gemm", 100 + 25 * (rank.rank == slow))
            rank.collective(rank.groups["dp"], "all_reduce", 100, blocking=True)
            yield rank.synchronize()

    missing = Missing(ranks=(lossy,), kernels_after=lost_after)
    return simulate(JobSpec(family="ddp", dp=4, ranks_per_host=2, steps=len(STEPS), missing=missing), train)


def without(document: dict[str, Any], is_lost: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return a trace without the events that are lost."""
    return document | {"traceEvents": [event for event in document["traceEvents"] if not is_lost(event)]}


def report_without(
    folder: Path, job: SimulatedJob, lossy: int, is_lost: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return the JSON result of a job of which rank `lossy` lost events."""
    job.write(folder, compressed=False)
    file = folder / f"rank{lossy}.json"
    file.write_text(json.dumps(without(json.loads(file.read_text()), is_lost)))
    return result_dict(analyze(load(folder, jobs=1)))


def tensor_job() -> SimulatedJob:
    """Return eight ranks in pairs that reduce in each layer; rank 1 computes longer than the others."""
    return simulate(replace(spec_of("tensor", 7, cause="compute"), layers=4, steps=4))


def named(report: Report) -> int | None:
    assert report.stragglers is not None
    return report.stragglers.verdict.rank


def notes_of(report: Report, kind: str) -> list[str]:
    return [note.text for note in report.run.notes if note.id == kind]


@pytest.mark.parametrize("lossy", [0, 3])
def test_a_rank_without_device_records_is_not_compared_and_the_others_are(lossy: int) -> None:
    """GIVEN rank 2 slow, and another rank without kernels THEN rank 2 is named, and that rank has no figures."""
    report = job_with_losses(lossy, slow=2).report()
    assert named(report) == 2
    assert report.stragglers is not None
    assert report.stragglers.verdict.caused_delay_ns == pytest.approx(100_000, rel=0.05)
    assert report.run.common_steps() == set(STEPS)

    assert report.breakdown is not None
    assert {row["rank"]: row["steps"] for row in records(report.breakdown.ranks)} == {
        rank: len(STEPS) * (rank != lossy) for rank in range(4)
    }
    assert lossy not in {row["rank"] for row in records(report.breakdown.steps)}
    assert report.phases is not None
    assert {row["ranks"] for row in records(report.phases.by_phase)} == {3}
    assert report.run.mean_rank_step_ns() == pytest.approx(600_000, rel=0.1)
    (note,) = notes_of(report, "no-device-records")
    assert note.startswith(f"rank {lossy}: ")
    assert notes_of(report, "unlinked") == notes_of(report, "step-mismatch") == []


def test_the_others_are_compared_as_if_the_file_were_missing(tmp_path: Path) -> None:
    job = job_with_losses(1, slow=2)
    job.write(tmp_path)
    report = result_dict(analyze(load(tmp_path)))
    (unmeasured,) = report["run"]["unmeasured_ranks"]
    assert unmeasured["rank"] == 1
    assert unmeasured["reason"] == "none of the 30 kernels that it launched is recorded"

    (file_of_lossy,) = tmp_path.glob("*rank1[._]*")
    file_of_lossy.unlink()
    without_file = result_dict(analyze(load(tmp_path)))
    assert without_file["run"]["unmeasured_ranks"] == []
    for section in ("collectives", "stragglers", "critical_path", "steps", "communication", "dimensions", "findings"):
        assert report[section] == without_file[section], section


def test_a_collective_without_its_launch_keeps_its_place_among_those_of_its_stream(tmp_path: Path) -> None:
    """GIVEN a collective of which the launch is lost THEN the run is replayed as if it were there."""
    job = tensor_job()
    kernels = [event for event in job.documents()[2]["traceEvents"] if event.get("cat") == "kernel"]
    of_tp = [event for event in kernels if event["args"].get("Process Group Description") == "mesh_tp"]
    correlation = of_tp[12]["args"]["correlation"]
    actual = report_without(
        tmp_path / "lossy",
        job,
        2,
        lambda event: event.get("cat") == "cuda_runtime" and event["args"]["correlation"] == correlation,
    )
    expected = result_dict(analyze(load(job.write(tmp_path / "whole"), jobs=1)))
    saved, saves = (result["whatif"]["fix"][0] for result in (actual, expected))
    assert (saved["rank"], saved["saves_ns_per_step"]) == (1, pytest.approx(saves["saves_ns_per_step"], rel=0.01))
    for section in ("collectives", "stragglers", "steps", "communication"):
        assert actual[section] == expected[section], section


def test_a_run_of_which_nothing_is_measured_is_still_reported(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    TraceBuilder(world_size=1).step(0, 0, 100).event(
        "cudaLaunchKernel", "cuda_runtime", 1, 1, args={"correlation": 4}
    ).write(folder / "rank0.json")
    report = analyze(load(folder))
    assert (report.run.device, report.run.common_steps()) == ("gpu", frozenset())
    (finding,) = report.findings
    assert finding.id == "no-complete-step"
