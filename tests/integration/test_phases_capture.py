"""Two ranks that checkpoint, accumulate, mix precisions, load slowly and shard: phases, counts and bytes are right, and
training is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.recorded import Job, Launch, read_traces

HERE = Path(__file__).parent
CHECKPOINTED = 3  # blocks
STEPS = 3
LOADING_NS = 30_000_000


@pytest.fixture(scope="module")
def job(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job.record(torchrun, HERE / "phases_worker.py", tmp_path_factory.mktemp("phases"))


SCENARIOS = ["reentrant", "non_reentrant", "wrapper", "accumulate", "bfloat16", "float16"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_losses_are_bit_equal_with_and_without_the_probe(job: Job, scenario: str) -> None:
    for facts in job.facts:
        losses = facts["losses"][scenario]
        assert losses["recorded"] == losses["plain"]
        assert len(set(losses["plain"])) == 5


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_checkpointed_call_is_recomputed_once_within_backward(job: Job, scenario: str) -> None:
    micro_batches = 3 if scenario == "accumulate" else 1
    result = job.result(scenario)
    for facts in result["phases"]["ranks"]:
        assert facts["steps"] == STEPS
        assert facts["recompute_count"] == STEPS * micro_batches * CHECKPOINTED
        assert facts["backward_passes"] == STEPS * micro_batches
        assert facts["micro_steps"] == micro_batches
        (backward_ns,) = (
            part["total_ns"]
            for part in result["phases"]["parts"]
            if (part["rank"], part["phase"]) == (facts["rank"], "backward")
        )
        assert 0 < facts["recompute_compute_ns"] <= facts["recompute_ns"] < backward_ns


@pytest.mark.parametrize("scenario", [*SCENARIOS, "sharded", "parallel", "loader_False"])
def test_phases_sum_to_the_step_and_parts_to_the_breakdown(job: Job, scenario: str) -> None:
    result = job.result(scenario)
    for rank in result["ranks"]:
        parts = [part for part in result["phases"]["parts"] if part["rank"] == rank["rank"]]
        assert [part["phase"] for part in parts] == [
            "data",
            "forward",
            "backward",
            "optimizer",
            "evaluation",
            "checkpoint",
            "logging",
            "other",
        ]
        assert sum(part["total_ns"] for part in parts) == rank["step_ns"]
        for field in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"):
            assert sum(part[field] for part in parts) == rank[field]


def test_the_data_types_in_use_and_the_skipped_step_are_named(job: Job) -> None:
    for facts in job.result("bfloat16")["phases"]["ranks"]:
        assert (facts["autocast"], facts["parameter_dtypes"][0]) == (["bfloat16"], "float32")
        assert facts["scaled_steps"] == 0
    for facts in job.result("float16")["phases"]["ranks"]:
        assert facts["autocast"] == ["float16"]
        assert (facts["scaled_steps"], facts["skipped_steps"]) == (STEPS, 1)
    for facts in job.result("reentrant")["phases"]["ranks"]:
        assert facts["autocast"] == []


def test_clipping_and_scaling_are_the_optimizer_s(job: Job) -> None:
    for trace in read_traces(job.out / "float16"):
        names = [event["name"] for event in trace["traceEvents"] if "tracekit.optimizer" in event.get("name", "")]
        # Clipping by norm is two spans: the norm, and the scaling.
        assert [names.count(f"tracekit.optimizer:{action}") for action in ("unscale", "clip", "update_scale")] == [
            STEPS,
            2 * STEPS,
            STEPS,
        ]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_slow_loader_takes_the_time_that_it_sleeps(job: Job, wrapped: bool) -> None:
    result = job.result(f"loader_{wrapped}")
    for step in result["steps"]:
        assert step["data_ns"] >= LOADING_NS
    for rank in result["ranks"]:
        (data_ns,) = (
            part["total_ns"]
            for part in result["phases"]["parts"]
            if (part["rank"], part["phase"]) == (rank["rank"], "data")
        )
        own = [step["data_ns"] for step in result["steps"] if step["rank"] == rank["rank"]]
        assert data_ns == sum(own)
    (finding,) = (finding for finding in result["findings"] if finding["id"] == "data-loading")
    assert finding["evidence"]["data_share"] > 0.05


@pytest.mark.parametrize("scenario", ["tied", "sharded", "parallel"])
def test_memory_is_what_an_independent_count_finds(job: Job, scenario: str) -> None:
    for facts, row in zip(job.facts, job.result(scenario)["memory"], strict=True):
        expected = facts["memory"][scenario]
        assert expected["parameter_bytes"] > 0
        assert {field: row[field] for field in expected} == expected
        assert row["peak_bytes"] > sum(expected.values())
