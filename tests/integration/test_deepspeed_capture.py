"""Two ranks of DeepSpeed's ZeRO 1, 2 and 3 over Gloo: phases, gathers and reductions by module, training unchanged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.components import require_module
from tests.integration.recorded import Job, Launch, read_traces, result_of, settings_of
from tracekit.model.spans import FsdpSpan, parse_fsdp_span

HERE = Path(__file__).parent
STAGES = ["zero1", "zero2", "zero3"]
MODULES = {"layers.0", "layers.1", "layers.2", "layers.3", "head"}
STEPS = 2


def spans_of(job: Job, stage: str) -> list[list[FsdpSpan]]:
    """Those of each rank that name modules."""
    return [
        [span for event in trace["traceEvents"] if (span := parse_fsdp_span(event.get("name", "")))]
        for trace in job.traces(stage)
    ]


@pytest.fixture(scope="module")
def job(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Job:
    require_module("torch")
    return Job.record(torchrun, HERE / "deepspeed_worker.py", tmp_path_factory.mktemp("deepspeed"))


@pytest.fixture(scope="module", params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def modules_of(spans: list[FsdpSpan], action: str, phase: str) -> set[str]:
    return {name for s in spans if (s.action, s.phase) == (action, phase) for name in s.module.split(", ")}


def test_losses_are_bit_equal_with_and_without_the_probe(job: Job, stage: str) -> None:
    for facts in job.facts:
        assert facts[stage]["recorded"]["losses"] == facts[stage]["plain"]["losses"]
        assert len(set(facts[stage]["plain"]["losses"])) == 6


def test_deepspeed_is_as_it_was_when_the_window_has_closed(job: Job, stage: str) -> None:
    assert all(facts[stage]["recorded"]["restored"] for facts in job.facts)


def test_the_analysis_names_the_stage_and_the_data_parallel_group(job: Job, stage: str) -> None:
    result = result_of(job.out / stage)

    assert result["run"]["strategies"] == [stage]
    used = {row["group"] for row in result["communication"]}
    groups = [group for group in result["groups"] if group["id"] in used]
    assert [(group["parallelism"], group["ranks"]) for group in groups] == [("dp", "world")]


def test_every_collective_of_the_flight_recorder_is_joined_to_its_event(job: Job, stage: str) -> None:
    rows = result_of(job.out / stage)["communication"]

    for rank, trace in enumerate(read_traces(job.out / stage)):
        recorded = Counter(record["kind"].strip("_") for record in trace["tracekit"]["collectives"])
        joined = Counter({row["kind"]: 0 for row in rows})
        for row in rows:
            joined[row["kind"]] += row["count"] * (row["rank"] == rank and row["group"] is not None)
        assert joined.total() == recorded.total() > 0


def test_an_engine_runs_each_phase_once_a_step(job: Job, stage: str) -> None:
    for trace in read_traces(job.out / stage):
        names = Counter(event.get("name") for event in trace["traceEvents"])
        phases = ("tracekit.engine:forward", "tracekit.engine:backward", "tracekit.optimizer:step")
        assert [names[phase] for phase in phases] == [STEPS, STEPS, STEPS]


def test_communication_is_in_the_phase_of_the_engine_that_asked_for_it(job: Job, stage: str) -> None:
    phases = {(row["kind"], row["phase"]) for row in result_of(job.out / stage)["communication"]}

    if stage == "zero3":
        assert phases == {
            ("all_gather", "forward"),
            ("all_gather", "backward"),
            ("reduce_scatter", "backward"),
            ("all_reduce", "optimizer"),  # whether a gradient has overflowed
        }
    else:
        assert phases == {("all_reduce", "backward"), ("all_reduce", "optimizer"), ("all_gather", "optimizer")}


def test_every_gradient_is_reduced_under_its_module_s_name(job: Job, stage: str) -> None:
    for spans in spans_of(job, stage):
        assert modules_of(spans, "reduce", "backward") == MODULES
    reductions = [row for row in result_of(job.out / stage)["fsdp"] if row["phase"] == "backward"]
    assert {name for row in reductions for name in row["module"].split(", ")} == MODULES


def test_exposed_time_of_the_modules_adds_up_and_only_the_check_for_overflow_is_of_none(job: Job, stage: str) -> None:
    result = result_of(job.out / stage)
    exposed_ns: dict[str, Counter[tuple[int, str]]] = {"fsdp": Counter(), "communication": Counter()}
    for section, total_ns in exposed_ns.items():
        for row in result[section]:
            total_ns[row["rank"], row["kind"]] += row["exposed_ns"]
    assert exposed_ns["fsdp"] == exposed_ns["communication"]
    of_none = [row for row in result["fsdp"] if row["module"] is None]
    assert {(row["kind"], row["phase"]) for row in of_none} == {("all_reduce", "optimizer")}
    assert max(row["size_bytes"] // row["count"] for row in of_none) <= 8


@pytest.mark.parametrize("updated", ["zero1", "zero2"])
def test_what_each_rank_has_updated_is_gathered_for_all_modules(job: Job, updated: str) -> None:
    for spans in spans_of(job, updated):
        assert {s.phase for s in spans if s.action == "unshard"} == {"optimizer"}
        (names,) = {s.module for s in spans if s.action == "unshard"}
        assert names == "layers.0, layers.1, layers.2 and 2 more"


def test_zero_3_fetches_each_module_as_it_runs(job: Job) -> None:
    for spans in spans_of(job, "zero3"):
        for phase in ("forward", "backward"):
            assert modules_of(spans, "use", phase) == MODULES
            uses = [span for span in spans if (span.action, span.phase) == ("use", phase)]
            assert len(uses) == STEPS * len(MODULES)
            brought = modules_of(spans, "unshard", phase) | modules_of(spans, "prefetch", phase)
            assert brought <= MODULES
        assert modules_of(spans, "prefetch", "forward")


def test_zero_3_gathers_are_rows_of_their_modules_with_the_time_ahead_of_use(job: Job) -> None:
    result = result_of(job.out / "zero3")

    rows = [row for row in result["fsdp"] if row["kind"] == "all_gather"]
    assert {row["phase"] for row in rows} == {"forward", "backward"}
    assert {name for row in rows if row["phase"] == "forward" for name in row["module"].split(", ")} == MODULES
    gathers = sum(row["count"] for row in result["communication"] if row["kind"] == "all_gather")
    assert sum(row["count"] for row in rows) == gathers
    assert all(row["prefetch_ns"] is not None for row in rows)


def test_the_units_of_zero_3_are_the_modules_with_their_sizes(job: Job) -> None:
    for trace in read_traces(job.out / "zero3"):
        units = {unit["module"]: unit["unit_bytes"] for unit in trace["tracekit"]["fsdp"]}
        assert units == {name: 4 * (64 * 10 + 10 if name == "head" else 64 * 64 + 64) for name in MODULES}
    for name in ("zero1", "zero2"):
        assert all(trace["tracekit"]["fsdp"] == [] for trace in read_traces(job.out / name))


def test_memory_counts_the_shards_that_zero_keeps_apart(job: Job, stage: str) -> None:
    whole = 4 * (4 * (64 * 64 + 64) + 64 * 10 + 10)
    half = 4 * (64 * 64 + 64) // 2 * 4 + (64 * 10 + 10) // 2 * 4  # of every parameter
    for row in result_of(job.out / stage)["memory"]:
        assert row["parameter_bytes"] == (half if stage == "zero3" else whole)
        assert half <= row["optimizer_bytes"] <= half + 16  # SGD has no state: the weights in 32 bits, padded
        assert half <= row["gradient_bytes"] <= 2 * whole


def test_nothing_had_to_be_noted(job: Job, stage: str) -> None:
    assert [trace["tracekit"]["notes"] for trace in read_traces(job.out / stage)] == [[], []]


def test_the_configuration_is_what_was_set(job: Job, stage: str) -> None:
    number = int(stage.removeprefix("zero"))
    settings = settings_of(result_of(job.out / stage), "zero")
    assert settings.items() >= {"stage": number, **job.facts[0][stage]["options"]}.items()
    assert settings.items() >= {"offload_optimizer": None, "offload_param": None, "bf16": False, "fp16": False}.items()
    assert settings["gradient_accumulation_steps"] == 1
    assert isinstance(settings["overlap_comm"], bool)
