"""Two ranks that communicate within their layers: which module of which parallelism, and that its waits are seen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Job, Launch, notes_of, result_of, without_metadata
from tests.old_torch import MOST_OVERLAP

HERE = Path(__file__).parent
STEPS = 2
ACTIVATION_BYTES = 2 * 8 * 32 * 4  # [batch, sequence, width] of float32

PLAIN_LAYERS = {
    ("blocks.0.down", "forward", "all_reduce"): 1,
    ("blocks.0.up", "backward", "all_reduce"): 1,
    ("blocks.1.down", "forward", "all_reduce"): 1,
    ("blocks.1.up", "backward", "all_reduce"): 1,
    ("head", "forward", "all_gather"): 1,
    ("head", "backward", "all_reduce"): 1,
}


@pytest.fixture(scope="module")
def job(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job.record(torchrun, HERE / "tensor_worker.py", tmp_path_factory.mktemp("tensor"))


def by_layer(result: dict[str, Any], rank: int = 0) -> dict[tuple[str | None, str, str], int]:
    """Collectives a step by (module, phase, kind)."""
    counts: Counter[tuple[str | None, str, str]] = Counter()
    for row in result["tensor"]:
        if row["rank"] == rank:
            counts[row["module"], row["phase"], row["kind"]] += row["count"]
    return {key: count // STEPS for key, count in counts.items()}


def test_losses_are_bit_equal_with_and_without_the_probe(job: Job) -> None:
    for facts in job.facts:
        for scenario, losses in facts.items():
            assert losses["recorded"] == losses["plain"], scenario


@pytest.mark.parametrize("scenario", ["dtensor", "dtensor_unnamed", "by_hand_unnamed"])
@pytest.mark.parametrize("rank", [0, 1])
def test_collectives_of_tensor_parallel_layers_go_by_their_module(job: Job, scenario: str, rank: int) -> None:
    result = job.result(scenario)

    assert result["run"]["strategies"] == ["tp"]
    assert by_layer(result, rank) == PLAIN_LAYERS
    sizes = {(row["module"], row["kind"]): row["size_bytes"] for row in result["tensor"]}
    assert sizes["blocks.0.down", "all_reduce"] == STEPS * ACTIVATION_BYTES
    assert {row["parallelism"] for row in result["tensor"]} == {"tp"}
    assert notes_of(result, "capture") == []


def test_sequence_parallel_layers_scatter_and_gather_activations(job: Job) -> None:
    result = job.result("sequence")

    assert result["run"]["strategies"] == ["sp", "tp"]
    expected = {("head", "forward", "all_gather"): 2, ("head", "backward", "reduce_scatter"): 1}
    for block in ("blocks.0", "blocks.1"):
        expected |= {
            (f"{block}.up", "forward", "all_gather"): 1,
            (f"{block}.up", "backward", "reduce_scatter"): 1,
            (f"{block}.down", "forward", "reduce_scatter"): 1,
            (f"{block}.down", "backward", "all_gather"): 1,
        }
    # The gradients of the replicated norms are added up where the optimizer first needs them, in no module.
    assert by_layer(result) == expected | {(None, "optimizer", "all_reduce"): 6}


@pytest.mark.parametrize("scenario", ["experts", "functional_experts_unnamed"])
def test_experts_are_told_by_name_or_by_uneven_splits(job: Job, scenario: str) -> None:
    result = job.result(scenario)

    assert "ep" in result["run"]["strategies"]
    assert {row["parallelism"] for row in result["tensor"]} == {"ep"}
    # the counts, the tokens there and back; the gradient of the first layer's input ends at the tokens themselves
    assert by_layer(result) == {("", "forward", "all_to_all"): 3, ("", "backward", "all_to_all"): 1}


def test_the_size_of_an_uneven_exchange_is_what_the_busier_side_of_a_rank_moves(job: Job) -> None:
    """240 tokens of 128 bytes on each rank: 60 are for expert 0, 180 for expert 1."""
    rows = [row for row in job.result("experts")["tensor"] if row["phase"] == "forward"]

    counts_bytes = 2 * 8
    assert [row["size_bytes"] for row in rows] == [
        STEPS * (counts_bytes + 2 * 240 * 128),  # rank 0 sends 240 and gets 120, then the other way round
        STEPS * (counts_bytes + 2 * 360 * 128),  # rank 1 sends 240 and gets 360
    ]


def loads(result: dict[str, Any]) -> dict[int, tuple[int, float]]:
    """What all-to-alls bring to each rank's expert in a step, bytes, and its ratio to the other rank's."""
    return {row["rank"]: (round(row["received_bytes"]), row["ratio"]) for row in result["expert_load"]}


@pytest.mark.parametrize("scenario", ["experts", "functional_experts_unnamed"])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "without metadata"])
def test_the_expert_that_gets_three_times_the_tokens_is_named(
    job: Job, tmp_path: Path, scenario: str, recorded: bool
) -> None:
    """Of 480 tokens of 128 bytes 120 are for expert 0, 360 for expert 1; backward their gradients are brought."""
    plain = None if recorded else result_of(without_metadata(job.out / scenario, tmp_path / "plain"))
    result = job.result(scenario) if plain is None else plain

    assert loads(result) == {0: (2 * 120 * 128, pytest.approx(1 / 3)), 1: (2 * 360 * 128, 3.0)}
    (finding,) = [finding for finding in result["findings"] if "experts" in finding["text"]]
    assert finding["rank"] == 1
    # Which of two findings takes more time depends on how busy the machine is: how much more the experts get, or how
    # much longer the rank computes for it.
    assert "receive 3.00 times the mean of the others" in finding["text"]
    if finding["id"] == "expert-load":
        assert ("inferred" in finding["text"]) == (not recorded)


def test_even_experts_name_nobody(job: Job) -> None:
    result = job.result("even_experts")
    assert {ratio for _, ratio in loads(result).values()} == {1.0}
    assert [finding for finding in result["findings"] if "experts" in finding["text"]] == []


@pytest.mark.parametrize("scenario", ["dtensor", "sequence", "by_hand_unnamed", "experts"])
def test_a_layer_s_share_is_of_its_own_time(job: Job, scenario: str) -> None:
    rows = [row for row in job.result(scenario)["tensor"] if row["module"] is not None]
    assert rows
    for row in rows:
        assert 0 < row["exposed_ns"] <= row["layer_ns"]
        assert row["layer_share"] == row["exposed_ns"] / row["layer_ns"]
    slept_ns = 2_000_000
    for row in rows:
        if row["module"] in {"blocks.0", "blocks.1"}:
            assert row["layer_ns"] >= STEPS * slept_ns


@pytest.mark.parametrize("scenario", ["dtensor", "sequence"])
def test_without_metadata_collectives_of_dtensor_are_tensor_parallel(job: Job, tmp_path: Path, scenario: str) -> None:
    plain = result_of(without_metadata(job.out / scenario, tmp_path / "plain"))
    assert {(row["module"], row["parallelism"], row["inferred"]) for row in plain["tensor"]} == {(None, "tp", True)}
    told = Counter((row["rank"], row["kind"], row["phase"]) for row in plain["tensor"] for _ in range(row["count"]))
    recorded = Counter(
        (row["rank"], row["kind"], row["phase"])
        for row in job.result(scenario)["tensor"]
        for _ in range(row["count"] if row["module"] is not None else 0)
    )
    assert told == recorded


def test_a_ring_of_sends_and_receives_is_context_parallel(job: Job) -> None:
    result = job.result("ring")

    assert "cp" in result["run"]["strategies"]
    assert by_layer(result) == {("", phase, kind): 1 for phase in ("forward", "backward") for kind in ("send", "recv")}


def test_a_compiled_module_is_left_alone_and_named_by_no_row(job: Job) -> None:
    result = job.result("compiled")

    assert by_layer(result) == {("down", "forward", "all_reduce"): 1, (None, "backward", "all_reduce"): 1}
    assert any("1 modules are compiled" in text for text in notes_of(result, "capture"))


@pytest.mark.parametrize("scenario", ["dtensor", "dtensor_unnamed", "sequence", "by_hand_unnamed", "experts"])
def test_collectives_that_block_do_not_overlap(job: Job, scenario: str) -> None:
    for rank in job.result(scenario)["ranks"]:
        assert rank["overlap_ratio"] <= MOST_OVERLAP


def test_every_collective_of_the_flight_recorder_is_joined(job: Job) -> None:
    for scenario, at_least in {
        "dtensor": 12,
        "sequence": 34,
        "by_hand_unnamed": 12,
        "experts": 8,
        "even_experts": 8,
    }.items():
        for join in job.result(scenario)["joins"]:
            assert (join["collectives"], join["joined"], join["unjoined"]) == (at_least, at_least, [])


@pytest.mark.parametrize("rank", [0, 1])
def test_reductions_of_a_parallel_loss_go_by_the_loss(job: Job, rank: int) -> None:
    """The largest logit, the sum of the exponentials, and the loss itself."""
    result = job.result("loss_parallel")
    assert by_layer(result, rank) == {("cross_entropy_loss", "forward", "all_reduce"): 3}
    assert all(row["layer_ns"] >= row["exposed_ns"] for row in result["tensor"])
