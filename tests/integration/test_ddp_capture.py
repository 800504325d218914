"""Two ranks of DDP over Gloo, recorded: what the trace says is what training did, and training did not change."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Job, Launch, result_of, settings_of
from tracekit.model.spans import parse_ddp_hook_span

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def job(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job.record(torchrun, HERE / "ddp_worker.py", tmp_path_factory.mktemp("ddp"))


def events_named(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return sorted((e for e in trace["traceEvents"] if e.get("name") == name), key=lambda event: event["ts"])


def test_losses_are_bit_equal_with_and_without_the_probe(job: Job) -> None:
    for facts in job.facts:
        assert facts["recorded"]["losses"] == facts["plain"]["losses"]
        assert len(set(facts["plain"]["losses"])) == 4


def test_both_ranks_record_the_same_run_and_steps(job: Job) -> None:
    first, second = job.metadata("recorded")

    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["run_id"] == second["run_id"]
    assert first["host_id"] == second["host_id"]
    assert [step["step"] for step in first["steps"]] == [step["step"] for step in second["steps"]] == [2, 3]
    assert {first["world_size"], second["world_size"]} == {2}
    assert first["strategies"] == second["strategies"] == ["ddp"]
    assert first["notes"] == second["notes"] == []


FORMS = ["recorded", "find_unused", "static_graph", "accumulate"]
FORMS += ["fp16", "two_parts", "batch_norm", "uneven", "compiled"]


@pytest.mark.parametrize("scenario", FORMS)
def test_the_bucket_map_is_the_reducer_s(job: Job, scenario: str) -> None:
    for facts, metadata in zip(job.facts, job.metadata(scenario), strict=True):
        (module,) = metadata["ddp"]
        assert [bucket["parameters"] for bucket in module["buckets"]] == facts[scenario]["buckets"]
        assert [bucket["size_bytes"] for bucket in module["buckets"]] == facts[scenario]["sizes"]
        assert [bucket["index"] for bucket in module["buckets"]] == list(range(len(module["buckets"])))
        assert sum(bucket["size_bytes"] for bucket in module["buckets"]) == 6 * (64 * 64 + 64) * 4
        assert {bucket["dtype"] for bucket in module["buckets"]} == {"float32"}
        cap_mb = 25 if scenario == "compiled" else 0.03
        assert (module["module"], module["bucket_cap_bytes"]) == ("Branches", int(cap_mb * 2**20))
        assert module["find_unused"] is (scenario == "find_unused")
        assert module["static_graph"] is (scenario == "static_graph")
        assert module["rebuilt"] is (scenario != "find_unused")


def test_sizes_of_parameters_and_the_order_of_their_gradients_are_recorded(job: Job) -> None:
    for metadata in job.metadata("recorded"):
        (module,) = metadata["ddp"]
        for bucket in module["buckets"]:
            assert bucket["elements"] == [64 if "bias" in name else 64 * 64 for name in bucket["parameters"]]
        names = [name for bucket in module["buckets"] for name in bucket["parameters"]]
        assert sorted(module["gradient_order"]) == list(range(len(names)))
        came = [int(names[position].split(".")[1]) for position in module["gradient_order"]]
        assert came == sorted(came, reverse=True)  # the last layer's first


def test_each_bucket_of_each_step_has_a_flight_recorder_entry_with_equal_ids_on_both_ranks(job: Job) -> None:
    first, second = job.metadata("recorded")
    buckets = first["ddp"][0]["buckets"]

    sizes = [record["in_shapes"][0][0] * 4 for record in first["collectives"]]
    assert sizes == [bucket["size_bytes"] for bucket in buckets] * len(first["steps"])
    ids = [(record["seq"], record["in_shapes"]) for record in first["collectives"]]
    assert ids == [(record["seq"], record["in_shapes"]) for record in second["collectives"]]
    assert {record["kind"] for record in first["collectives"]} == {"all_reduce"}


def test_a_flight_recorder_entry_is_created_within_its_event_of_the_trace(job: Job) -> None:
    for trace in job.traces("recorded"):
        events = events_named(trace, "c10d::allreduce_")
        records = trace["tracekit"]["collectives"]
        for event, record in zip(events, records, strict=True):
            start_ns = trace["baseTimeNanoseconds"] + int(event["ts"] * 1000)
            assert start_ns <= record["created_ns"] <= start_ns + int(event["dur"] * 1000) + 1000


@pytest.mark.alone  # and so the first, which records the job: other tests only read it
def test_times_of_buckets_are_those_that_ddp_logs(job: Job) -> None:
    """DDP's communication time is from the launch of its first bucket to when the last one is reduced and copied back,
    pauses included. Single buckets it does not time. A process that was interrupted between an event and DDP's reading
    of the clock differs by the interruption: so the median over steps is compared."""
    result = result_of(job.out / "logged")
    ratios = []
    for rank, (facts, trace) in enumerate(zip(job.facts, job.traces("logged"), strict=True)):
        starts = {row["step"]: row["start_ns"] for row in result["steps"] if row["rank"] == rank}
        copied_back_ns = [
            trace["baseTimeNanoseconds"] + int((event["ts"] + event["dur"]) * 1000)
            for event in events_named(trace, "torch.distributed.ddp.reducer::copy_bucket_to_grad")
        ]
        for step, start_ns in starts.items():
            rows = [row for row in result["buckets"] if (row["rank"], row["step"]) == (rank, step)]
            assert len(rows) == len(result["bucket_map"]) > 2
            logged = facts["logged"][str(step)]
            launch_ns = start_ns + min(row["launch_ns"] for row in rows)
            last_gradient_ns = start_ns + max(row["ready_ns"] for row in rows)
            later = [ns for ns in copied_back_ns if ns > last_gradient_ns]
            back_ns = later[min(len(later), 12) - 1]  # weights and biases of six layers
            ratios.append((back_ns - launch_ns) / logged["backward_comm_time"])
    assert len(ratios) == 2 * 4
    assert statistics.median(ratios) == pytest.approx(1.0, abs=0.05)


def test_gradient_accumulation_reduces_in_the_last_micro_batch_only(job: Job) -> None:
    for metadata in job.metadata("accumulate"):
        assert len(metadata["collectives"]) == len(metadata["ddp"][0]["buckets"]) * len(metadata["steps"])


@pytest.mark.parametrize(("scenario", "a_bucket"), [("fp16", 1), ("two_parts", 2)])
def test_the_user_s_communication_hook_runs_in_a_span_of_its_bucket(job: Job, scenario: str, a_bucket: int) -> None:
    for trace in job.traces(scenario):
        (module,) = trace["tracekit"]["ddp"]
        steps, buckets = len(trace["tracekit"]["steps"]), module["buckets"]
        names = [event["name"] for event in trace["traceEvents"] if event.get("name", "").startswith("tracekit.ddp:")]
        spans = [span for name in names if (span := parse_ddp_hook_span(name)) is not None]
        assert [(span.bucket, span.size_bytes, span.is_last) for span in spans] == [
            (bucket["index"], bucket["size_bytes"], bucket is buckets[-1]) for bucket in buckets
        ] * steps
        assert {span.module for span in spans} == {"Branches"}
        assert len(trace["tracekit"]["collectives"]) == a_bucket * len(buckets) * steps
        assert trace["tracekit"]["strategies"] == ["ddp"]
    for facts in job.facts:
        assert facts["fp16"]["losses"] == facts["plain_fp16"]["losses"]


def test_collectives_of_a_communication_hook_lie_in_its_span(job: Job) -> None:
    trace = job.traces("two_parts")[0]
    hooks = [event for event in trace["traceEvents"] if event.get("name", "").startswith("tracekit.ddp:hook")]
    for event in events_named(trace, "c10d::allreduce_"):
        around = [h for h in hooks if h["ts"] <= event["ts"] and event["ts"] + event["dur"] <= h["ts"] + h["dur"]]
        assert len(around) == 1


@pytest.mark.parametrize(
    ("scenario", "others"),
    [
        # the running mean, variance and count of batches go out at the beginning of each forward, by data type
        ("batch_norm", {("broadcast", "forward"): 2}),
        ("find_unused", {("all_reduce", "backward"): 1}),  # which parameters were used
    ],
)
def test_what_ddp_sends_besides_buckets_is_no_bucket(
    job: Job, scenario: str, others: dict[tuple[str, str], int]
) -> None:
    result = result_of(job.out / scenario)
    steps = result["ranks"][0]["steps"]

    expected = Counter({("all_reduce", "backward"): len(result["bucket_map"])}) + Counter(others)
    found = Counter({(row["kind"], row["phase"]): row["count"] for row in result["communication"] if row["rank"] == 0})
    assert found == {key: count * steps for key, count in expected.items()}
    assert all(row["collectives"] == row["joined"] for row in result["joins"])


def test_a_job_that_ends_before_it_is_recorded_says_what_to_change(job: Job) -> None:
    assert job.metadata("one_step") == []
    assert "the loop ended after 1 steps" in job.stderr


def test_blocking_waits_are_spans(job: Job) -> None:
    for trace in job.traces("waits"):
        waits = events_named(trace, "tracekit.wait")
        assert len(waits) == 2 * len(trace["tracekit"]["steps"])
        assert len(events_named(trace, "gloo:all_reduce")) == len(waits)


def test_groups_are_listed_with_what_they_are_for(job: Job) -> None:
    for rank, metadata in enumerate(job.metadata("destroyed")):
        world, alone = metadata["groups"]
        assert (world["ranks"], world["backend"], world["desc"]) == ("world", "gloo", "default_pg")
        assert (alone["ranks"], alone["parallelism"]) == ([rank], None)
    assert job.metadata("recorded")[0]["groups"][0]["parallelism"] == "dp"


def test_a_window_is_written_before_the_process_group_is_destroyed(job: Job) -> None:
    for metadata in job.metadata("destroyed"):
        assert [step["step"] for step in metadata["steps"]] == [0, 1]
        assert [record["seq"] for record in metadata["collectives"]][1:] == [metadata["collectives"][0]["seq"] + 1]
        assert metadata["window"]["partial"] is False


def test_ranks_of_one_host_have_one_clock(job: Job) -> None:
    for metadata in job.metadata("recorded"):
        assert (metadata["clock"]["method"], metadata["clock"]["reference_rank"]) == ("store", 0)
        samples = [(sample["offset_ns"], sample["error_ns"]) for sample in metadata["clock"]["samples"]]
        assert samples == [(0, 0), (0, 0)]  # as the window opened and as it closed


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("recorded", {}),
        ("find_unused", {"find_unused_parameters": True}),
        ("static_graph", {"static_graph": True, "gradient_as_bucket_view": True, "broadcast_buffers": False}),
        ("fp16", {"comm_hook": "fp16_compress_hook"}),
        ("built_in", {"comm_hook": "BuiltinCommHookType.FP16_COMPRESS"}),
        ("two_parts", {"comm_hook": "in_two_parts"}),
        ("compiled", {"bucket_cap_mb": 25}),
    ],
)
def test_the_configuration_is_what_was_set(job: Job, scenario: str, expected: dict[str, Any]) -> None:
    usual = {
        "bucket_cap_mb": 0.03,
        "comm_hook": "none",
        "gradient_as_bucket_view": False,
        "broadcast_buffers": True,
        "static_graph": False,
        "find_unused_parameters": False,
    }
    assert settings_of(result_of(job.out / scenario), "ddp") == usual | expected


def test_a_compiled_model_is_named_with_its_backend(job: Job) -> None:
    result = result_of(job.out / "compiled")
    rows = {row["setting"]: row for row in result["configuration"] if row["component"] == "compile"}
    assert (rows["backend"]["value"], rows["backend"]["modules"]) == ("eager", ["DistributedDataParallel"])
    assert rows["graphs"]["value"] >= 1
