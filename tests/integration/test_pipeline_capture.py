"""Recorded pipelines of two ranks over Gloo: actions, messages, strategy and groups are those of the training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Job, Launch, notes_of, result_of, without_metadata
from tests.old_torch import PIPELINES_EVALUATE, SEVERAL_STAGES_HAVE_SPANS, V_SCHEDULES
from tests.perfetto.merged import (
    assert_arrows_are_whole,
    assert_totals_are_the_reports,
    assert_views_are_the_reports,
    input_slices,
    merged,
    shown_slices,
)
from tracekit.loading.load import load
from tracekit.trace_processor import TraceProcessor

HERE = Path(__file__).parent
RECORDED_STEPS, MICROBATCHES = 2, 4
ONE_STAGE = ("gpipe", "1f1b")
TWO_STAGES = ("interleaved1f1b", "loopedbfs", "interleavedzerobubble", *V_SCHEDULES)
BY_HAND = ("manual", "manual_1f1b", "manual_forward_only", "model_parallel")
NO_PIPELINE = ("ring", "messages")
EVALUATION = ("evaluation",) if PIPELINES_EVALUATE else ()
FORWARD_ONLY = ("evaluation", "manual_forward_only")


@pytest.fixture(scope="module")
def job(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job.record(torchrun, HERE / "pipeline_worker.py", tmp_path_factory.mktemp("pipeline"))


def counts(result: dict[str, Any]) -> dict[int, dict[str, int]]:
    """Return the number of actions by stage and kind."""
    found: dict[int, dict[str, int]] = {}
    for row in result["pipeline"]["by_stage"]:
        found.setdefault(row["stage"], {})[row["kind"]] = row["count"]
    return found


@pytest.mark.parametrize("scenario", ["1f1b", "interleavedzerobubble"])
def test_the_merged_trace_shows_the_report_s_totals(
    job: Job, trace_processor: TraceProcessor, tmp_path: Path, scenario: str
) -> None:
    run = load(job.out / scenario)
    merged(trace_processor, run, tmp_path)
    assert shown_slices(trace_processor) == input_slices(job.out / scenario)
    assert_totals_are_the_reports(trace_processor, run)
    assert_views_are_the_reports(trace_processor, run)
    assert_arrows_are_whole(trace_processor, run)
    shown = Counter((row["stage"], row["kind"]) for row in trace_processor.query("select * from tracekit_actions"))
    assert shown == {
        (stage, kind): n for stage, kinds in counts(job.result(scenario)).items() for kind, n in kinds.items()
    }


def test_losses_are_bit_equal_with_and_without_the_probe(job: Job) -> None:
    for facts in job.facts:
        for scenario, losses in facts.items():
            assert losses["recorded"] == losses["plain"], scenario


@pytest.mark.parametrize("scenario", [*ONE_STAGE, *TWO_STAGES, "unnamed_mesh", *EVALUATION, *BY_HAND])
def test_every_stage_runs_each_microbatch_forward_and_backward_once_a_step(job: Job, scenario: str) -> None:
    result = job.result(scenario)
    pipeline = result["pipeline"]
    microbatches = 1 if scenario == "model_parallel" else MICROBATCHES
    stages = 4 if scenario in {*TWO_STAGES, "evaluation"} else 2
    assert (pipeline["stages"], pipeline["virtual_stages"]) == (stages, stages // 2)
    assert (pipeline["microbatches"], pipeline["steps"], pipeline["pipelines"]) == (microbatches, RECORDED_STEPS, 1)
    assert list(counts(result)) == list(range(stages))
    for kinds in counts(result).values():
        assert kinds["F"] == microbatches * RECORDED_STEPS
        backward = 0 if scenario in FORWARD_ONLY else microbatches * RECORDED_STEPS
        assert kinds.get("B", 0) + kinds.get("I", 0) == backward
        assert kinds.get("I", 0) == kinds.get("W", 0)


@pytest.mark.parametrize("scenario", [*ONE_STAGE, *TWO_STAGES, *BY_HAND])
def test_strategy_schedule_and_group_are_named(job: Job, scenario: str) -> None:
    result = job.result(scenario)
    assert result["run"]["strategies"] == ["pp"]
    assert result["pipeline"]["schedule"] == ("manual" if scenario in BY_HAND else scenario)
    assert [(g["desc"], g["parallelism"], g["ranks"]) for g in result["groups"]] == [
        ("default_pg", "pp", "world"),
        ("pair", None, "world"),
    ]


# The bubble is measured against the one in theory. These tests come first, as they are alone, and record the job.
@pytest.mark.alone
@pytest.mark.parametrize("scenario", [*ONE_STAGE, *TWO_STAGES, *BY_HAND])
def test_bubbles_are_explained(job: Job, scenario: str) -> None:
    """GIVEN two ranks THEN warm-up and drain, in which all actions are equally long, follow from the order alone."""
    pipeline = job.result(scenario)["pipeline"]
    for row in pipeline["by_rank"]:
        assert sum(row["causes"].values()) == row["bubble_ns"] > 0
    in_theory = {"gpipe": 1 / 5, "1f1b": 1 / 5, "interleaved1f1b": 1 / 9, "loopedbfs": 1 / 9, "manual": 1 / 5}
    if scenario in in_theory:
        assert pipeline["ideal_bubble_ratio"] == pytest.approx(in_theory[scenario])
        schedule_ns = pipeline["causes"]["warmup_ns"] + pipeline["causes"]["drain_ns"]
        busy_ns = sum(row["busy_ns"] for row in pipeline["by_rank"])
        assert schedule_ns / (schedule_ns + busy_ns) == pytest.approx(in_theory[scenario], abs=0.015)


@pytest.mark.parametrize("scenario", [*ONE_STAGE, *TWO_STAGES])
def test_without_metadata_the_pipeline_is_inferred(job: Job, scenario: str, tmp_path: Path) -> None:
    known, found = job.result(scenario), result_of(without_metadata(job.out / scenario, tmp_path / "run", spans=True))
    facts = ("schedule", "stages", "virtual_stages", "microbatches", "bubble_ratio", "ideal_bubble_ratio", "by_stage")
    assert {name: found["pipeline"][name] for name in facts} == {name: known["pipeline"][name] for name in facts}
    assert found["pipeline"]["schedule_inferred"]
    assert not known["pipeline"]["schedule_inferred"]
    assert len(notes_of(found, "inferred")) == 2


@pytest.mark.parametrize("scenario", TWO_STAGES if SEVERAL_STAGES_HAVE_SPANS else ())
def test_without_the_captures_spans_those_of_torch_show_the_schedule(job: Job, scenario: str, tmp_path: Path) -> None:
    found = result_of(without_metadata(job.out / scenario, tmp_path / "run"))["pipeline"]
    if scenario == "dualpipev":  # one label for a forward and a backward together
        assert found is None
        return
    known = job.result(scenario)["pipeline"]
    assert (found["schedule"], found["stages"], found["microbatches"]) == (scenario, 4, MICROBATCHES)
    assert found["ideal_bubble_ratio"] == pytest.approx(known["ideal_bubble_ratio"], abs=0.02)
    assert found["bubble_ratio"] <= known["bubble_ratio"]


@pytest.mark.parametrize("scenario", [*ONE_STAGE, *TWO_STAGES, *EVALUATION, *BY_HAND, *NO_PIPELINE])
def test_every_send_is_joined_to_its_receive(job: Job, scenario: str) -> None:
    result = job.result(scenario)
    assert result["point_to_point"]
    for edge in result["point_to_point"]:
        assert edge["joined"] == edge["sends"] == edge["receives"] > 0
        assert edge["group"] is not None
    assert notes_of(result, "unlinked") == []


def test_messages_belong_to_the_group_that_they_were_sent_in(job: Job) -> None:
    """GIVEN two messages a step in the default group, and three in another, of which two carry an object."""
    result = job.result("messages")
    edges = {result["groups"][edge["group"]]["desc"]: edge["sends"] for edge in result["point_to_point"]}
    assert edges == {"default_pg": 2 * RECORDED_STEPS, "pair": 3 * RECORDED_STEPS}
    assert {row["group"] is not None for row in result["communication"]} == {True}


@pytest.mark.parametrize("scenario", NO_PIPELINE)
def test_rings_and_single_messages_are_no_pipeline(job: Job, scenario: str) -> None:
    result = job.result(scenario)
    assert result["pipeline"] is None
    assert result["run"]["strategies"] == (["cp"] if scenario == "ring" else [])


def test_blocking_messages_do_not_overlap(job: Job) -> None:
    result = job.result("manual")
    ranks = result["ranks"]
    assert sum(r["overlapped_comm_ns"] for r in ranks) <= 0.02 * sum(r["comm_ns"] for r in ranks)
    assert all(row["mean_ns"] >= 3_000_000 for row in result["pipeline"]["by_stage"] if row["stage"] == 1)
