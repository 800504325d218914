"""Scripts as tutorials have them, with no tracekit call but the decorator: analysed by the command, as a user would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, notes_of, result_of

SCRIPTS = Path(__file__).with_name("plain_scripts")
STEPS = 3


@pytest.mark.parametrize(
    ("script", "strategy", "parallelism", "collectives_a_step"),
    [
        ("ddp", "ddp", "dp", 2),  # a bucket and the loss
        pytest.param("ddp_mesh", "ddp", "dp", 1, marks=pytest.mark.long),
        ("manual_data_parallel", "manual_dp", "dp", 9),  # eight parameters and the loss
        ("tensor_parallel_columns", "tp", "tp", 3),  # a gather a layer, one gradient that goes on
        pytest.param("inference_rows", "tp", "tp", 2, marks=pytest.mark.long),
    ],
)
def test_a_script_with_the_decorator_alone(
    torchrun: Launch,
    launch: Launch,
    tmp_path: Path,
    script: str,
    strategy: str,
    parallelism: str,
    collectives_a_step: int,
) -> None:
    torchrun(SCRIPTS / f"{script}.py", tmp_path, anew=script == "ddp")
    result: dict[str, Any] = json.loads(launch("-m", "tracekit", "analyze", tmp_path, "--json").stdout)

    assert result["run"]["strategies"] == [strategy]
    assert [(group["parallelism"], group["ranks"]) for group in result["groups"]] == [(parallelism, "world")]
    expected = STEPS * collectives_a_step
    assert [(row["collectives"], row["joined"]) for row in result["joins"]] == [(expected, expected)] * 2
    assert notes_of(result, "unlinked", "capture") == []
    by_hand = [finding for finding in result["findings"] if finding["id"] == "gradients-by-hand"]
    assert len(by_hand) == (strategy == "manual_dp")
    for finding in by_hand:
        assert "8 all-reduces a step, one a parameter, after the backward pass" in finding["text"]
        assert "DistributedDataParallel" in finding["action"]
        assert (finding["evidence"]["all_reduces_per_step"], finding["evidence"]["in_backward"]) == (8, 0)
        assert finding["evidence"]["buckets"] == 1  # 0.1 MB: replayed in a single one
    if script != "ddp_mesh" and script != "ddp":  # every collective of theirs blocks
        overlapped = sum(row["overlapped_comm_ns"] for row in result["ranks"])
        assert overlapped <= 0.02 * sum(row["comm_ns"] for row in result["ranks"])


# ---- without modules: lists of parameters, and loops written by hand ------------------------------------------------

DP_BYTES = 6 * 512 * 512 * 4  # parameters_data_parallel.py
TP_BYTES = 32 * 128 * 4  # what parameters_tensor_parallel.py gathers


def strategies_and_groups(result: dict[str, Any]) -> tuple[list[str], list[tuple[str, str]]]:
    return result["run"]["strategies"], [(group["parallelism"], group["ranks"]) for group in result["groups"]]


@pytest.mark.parametrize("operation", ["sum", pytest.param("avg", marks=pytest.mark.long)])
def test_a_list_of_parameters_averaged_by_hand(torchrun: Launch, tmp_path: Path, operation: str) -> None:
    torchrun(SCRIPTS / "parameters_data_parallel.py", tmp_path, operation)
    result = result_of(tmp_path)

    assert strategies_and_groups(result) == (["manual_dp"], [("dp", "world")])
    for row in result["memory"]:
        assert (row["parameter_bytes"], row["gradient_bytes"]) == (DP_BYTES, DP_BYTES)
        assert row["optimizer_bytes"] == 2 * DP_BYTES + 6 * 4  # two moments, and a count for each parameter
    (finding,) = [finding for finding in result["findings"] if finding["id"] == "gradients-by-hand"]
    assert "6 all-reduces a step, one a parameter, after the backward pass" in finding["text"]
    assert finding["evidence"]["buckets"] >= 2  # replayed: a first bucket of 1 MiB and the rest
    if finding["saving_ns"] is None:
        assert "saves no more than its error" in finding["evidence"]["no_replay"]
    else:
        assert 2 * finding["saving_error_ns"] < finding["saving_ns"] < 1.5 * finding["time_ns"]


def test_a_plain_class_that_updates_its_tensors_by_hand(torchrun: Launch, tmp_path: Path) -> None:
    torchrun(SCRIPTS / "parameters_without_optimizer.py", tmp_path)
    result = result_of(tmp_path)

    assert strategies_and_groups(result) == (["manual_dp"], [("dp", "world")])
    parameter_bytes = 4 * sum(inputs * outputs + outputs for inputs, outputs in ((64, 128), (128, 128), (128, 16)))
    for row in result["memory"]:
        assert (row["parameter_bytes"], row["gradient_bytes"]) == (parameter_bytes, parameter_bytes)
        assert row["optimizer_bytes"] is None
    (finding,) = [finding for finding in result["findings"] if finding["id"] == "gradients-by-hand"]
    assert "6 all-reduces a step, one a parameter" in finding["text"]


@pytest.mark.parametrize("mode", ["grad", pytest.param("no_grad", marks=pytest.mark.long)])
def test_columns_of_parameters_gathered_by_hand(torchrun: Launch, tmp_path: Path, mode: str) -> None:
    torchrun(SCRIPTS / "parameters_tensor_parallel.py", tmp_path, mode)
    result = result_of(tmp_path)

    assert strategies_and_groups(result) == (["tp"], [("tp", "world")])
    (row,) = result["collectives"]
    assert (row["kind"], row["size_bytes"], row["count"]) == ("all_gather", TP_BYTES, 4 * STEPS)
    assert any("all_gather (tp)" in finding["text"] for finding in result["findings"])
    for memory in result["memory"]:
        assert (memory["parameter_bytes"], memory["gradient_bytes"]) == (4 * 128 * 64 * 4, 0)
        assert memory["optimizer_bytes"] is None


def test_column_and_row_shards_trained_through_autograd_functions(torchrun: Launch, tmp_path: Path) -> None:
    torchrun(SCRIPTS / "parameters_tensor_parallel_training.py", tmp_path)
    result = result_of(tmp_path)

    assert strategies_and_groups(result) == (["tp"], [("tp", "world")])
    (row,) = result["collectives"]
    assert (row["kind"], row["size_bytes"]) == ("all_reduce", 32 * 64 * 4)
    assert row["count"] == STEPS * (3 + 2)  # a layer forward and backward, without the gradient of the input
    assert {row["phase"] for row in result["tensor"]} == {"forward", "backward"}


@pytest.mark.parametrize(
    ("script", "option", "ranks"),
    [
        ("parameters_pipeline_forward", "barrier", 2),
        pytest.param("parameters_pipeline", "gpipe", 2, marks=pytest.mark.long),
        ("parameters_pipeline", "1f1b", 4),
    ],
)
def test_a_pipeline_of_parameters_with_send_and_recv(
    torchrun: Launch, tmp_path: Path, script: str, option: str, ranks: int
) -> None:
    torchrun(SCRIPTS / f"{script}.py", tmp_path, option, ranks=ranks)
    result = result_of(tmp_path)
    pipeline = result["pipeline"]

    assert strategies_and_groups(result) == (["pp"], [("pp", "world")])
    assert (pipeline["schedule"], pipeline["stages"], pipeline["microbatches"]) == ("manual", ranks, 4)
    assert [row["stages"] for row in pipeline["by_rank"]] == [[rank] for rank in range(ranks)]
    kinds = "F" if script == "parameters_pipeline_forward" else "BF"
    counts = {(row["stage"], row["kind"]): row["count"] for row in pipeline["by_stage"]}
    assert counts == {(stage, kind): 4 * STEPS for stage in range(ranks) for kind in kinds}
    theory = (ranks - 1) / (4 + ranks - 1)
    assert pipeline["ideal_bubble_ratio"] == pytest.approx(theory, abs=0.01)
    # On a busy machine actions take longer, and ranks are late to each other. What is left without that time is theory.
    causes, bubble_ratio = pipeline["causes"], pipeline["bubble_ratio"]
    of_order = bubble_ratio * (causes["warmup_ns"] + causes["drain_ns"]) / sum(causes.values())
    assert of_order / (1 - bubble_ratio + of_order) == pytest.approx(theory, abs=0.01)
    assert bubble_ratio > theory - 0.01
    (finding,) = [finding for finding in result["findings"] if finding["cause"] == "bubble"]
    assert f" {bubble_ratio:.0%} " in finding["text"]


def test_bubbles_of_forwards_without_a_barrier_are_what_actions_leave_of_the_steps(
    torchrun: Launch, tmp_path: Path
) -> None:
    torchrun(SCRIPTS / "parameters_pipeline_forward.py", tmp_path, "stream")
    result = result_of(tmp_path)

    assert (result["pipeline"]["stages"], result["pipeline"]["microbatches"]) == (2, 4)
    assert result["pipeline"]["filled_ratio"] >= 0.2
    busy_ns = sum(row["busy_ns"] for row in result["pipeline"]["by_rank"])
    left = 1 - busy_ns / sum(row["step_ns"] for row in result["ranks"])
    assert result["pipeline"]["bubble_ratio"] == pytest.approx(left)
    assert result["pipeline"]["ideal_bubble_ratio"] < 0.1
