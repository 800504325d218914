"""Files of simulated jobs: clocks, lost records, and the way to tracekit without files."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tracekit
from tests.gpu_jobs import Clocks, JobSpec, Missing, simulate, spec_of

SPEC = JobSpec(family="ddp", dp=4, ranks_per_host=2, layers=3, steps=3)
PIPELINE = JobSpec(family="pipeline", pp=2, layers=2, microbatches=4, steps=3)


def complete_events(document: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event.get("cat") == category and event["ph"] == "X"]


def starts_us(spec: JobSpec, rank: int) -> list[Decimal]:
    return [event["ts"] for event in complete_events(simulate(spec).documents()[rank], "kernel")]


def test_an_offset_moves_all_times_of_a_machine() -> None:
    ahead = replace(SPEC, clocks=Clocks(offset_us=(0, 1500.5)))

    assert starts_us(ahead, 1) == starts_us(SPEC, 1)
    assert [a - b for a, b in zip(starts_us(ahead, 2), starts_us(SPEC, 2), strict=True)] == pytest.approx(
        [Decimal("1500.5")] * len(starts_us(SPEC, 2))
    )
    assert simulate(ahead).truth.clock_ahead_ns == (0, 0, 1_500_500, 1_500_500)


def test_a_clock_that_drifts_is_ever_further_ahead() -> None:
    drifting = replace(SPEC, clocks=Clocks(drift_ppm=(0, 100)))
    first, last = min(starts_us(SPEC, 3)), max(starts_us(SPEC, 3))

    shown = max(starts_us(drifting, 3)) - min(starts_us(drifting, 3))

    assert shown - (last - first) == pytest.approx((last - first) / 10_000, abs=Decimal("0.002"))


def test_a_clock_that_jumps_is_right_before_and_ahead_after() -> None:
    jumping = replace(SPEC, clocks=Clocks(jump_us=(0, 700), jump_at=0.5))

    errors = [a - b for a, b in zip(starts_us(jumping, 2), starts_us(SPEC, 2), strict=True)]

    assert set(errors) == {Decimal("0.000"), Decimal("700.000")}


@pytest.mark.parametrize("family", ["ddp", "hybrid"])
def test_tracekit_reads_the_same_from_files_and_from_memory(tmp_path: Path, family) -> None:
    job = simulate(spec_of(family, 5))

    from_memory = job.report(only=["breakdown", "stragglers"])

    for compressed in (False, True):
        folder = job.write(tmp_path / str(compressed), compressed=compressed)
        from_files = tracekit.analyze(folder, only=["breakdown", "stragglers"])
        assert from_files.findings == from_memory.findings
        assert [rank.steps for rank in from_files.run.ranks] == [rank.steps for rank in from_memory.run.ranks]
        assert from_files.run.clocks == from_memory.run.clocks


@pytest.mark.parametrize("family", ["ddp", "fsdp", "tensor", "pipeline", "expert", "hybrid"])
def test_tracekit_finds_the_parts_of_each_step(family) -> None:
    """With right clocks, as a step is measured on the clock of its own machine."""
    spec = replace(spec_of(family, 6), clocks=Clocks(), dispatch="all_to_all")
    job = simulate(spec)

    expected = {
        (step.rank, step.step): (step.compute_ns, step.exposed_comm_ns, step.exposed_copy_ns, step.idle_ns)
        for step in job.truth.steps
    }
    actual = {
        (rank.rank, step.step): (step.compute_ns, step.exposed_comm_ns, step.exposed_copy_ns, step.idle_ns)
        for rank in job.run(only=["breakdown"]).ranks
        for step in rank.steps
    }

    assert actual == expected


def test_kernels_are_missing_after_a_share_of_the_recording() -> None:
    missing = Missing(ranks=(1,), kernels_after=0.5)
    documents = simulate(replace(SPEC, missing=missing)).documents()
    whole = simulate(SPEC).documents()

    assert documents[0] == whole[0]
    assert 0.3 < len(complete_events(documents[1], "kernel")) / len(complete_events(whole[1], "kernel")) < 0.7
    assert complete_events(documents[1], "cuda_runtime") == complete_events(whole[1], "cuda_runtime")


def test_all_receives_are_missing_with_their_operators_and_kernels() -> None:
    documents = simulate(replace(PIPELINE, missing=Missing(ranks=(1,), receives=1.0))).documents()

    operators = complete_events(documents[1], "cpu_op")
    names = [event["args"].get("Collective name", event["name"]) for event in operators]
    assert "recv" not in names
    assert "c10d::recv_" not in names
    assert names.count("send") == names.count("c10d::send") == 4 * PIPELINE.steps
    kernels = [event for event in complete_events(documents[1], "kernel") if "SendRecv" in event["name"]]
    assert len(kernels) == 4 * PIPELINE.steps


def test_files_of_ranks_are_missing() -> None:
    job = simulate(replace(SPEC, missing=Missing(ranks=(2,), files=True)))

    assert job.documents().keys() == {0, 1, 3}
    assert job.run(only=["breakdown"]).missing_ranks == (2,)
