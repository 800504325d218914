"""What a probe's run must hold: the units of its parallelism as they are, and the planted defect.

Planted delays are sleeps, which a busy machine only lengthens: times are bounded from below, all else is exact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import read_traces, settings_of

STEPS = 4
SETTINGS_BYTES = 4 * (2 * (2 * 64 + 4 * 64 * 64 + 4 * 64 + 4 * 64 * 64 + 64) + 2 * 64 + 10 * 64 + 10)

Result = dict[str, Any]


# ---- units ------------------------------------------------------------------------------------------------------


def buckets(result: Result) -> list[tuple[int, int, int]]:
    """Index, number of parameters and bytes of each bucket of DDP."""
    return [(row["index"], len(row["parameters"]), row["size_bytes"]) for row in result["bucket_map"]]


def sharded_modules(result: Result) -> set[str]:
    return {name for row in result["fsdp"] if row["module"] is not None for name in row["module"].split(", ")}


def layers(result: Result) -> dict[tuple[int, str, str, str], int]:
    """Collectives within layers: the count of each (rank, module, phase, kind)."""
    rows = [row for row in result["tensor"] if row["module"] is not None]
    return {(row["rank"], row["module"], row["phase"], row["kind"]): row["count"] for row in rows}


def stages(result: Result) -> tuple[str, int, dict[tuple[int, str], int]]:
    """Schedule, microbatches, and the count of actions of each (stage, kind)."""
    pipeline = result["pipeline"]
    counts = {(row["stage"], row["kind"]): row["count"] for row in pipeline["by_stage"]}
    return pipeline["schedule"], pipeline["microbatches"], counts


def no_units(result: Result) -> list[Any]:
    return [*result["bucket_map"], *result["fsdp"], *result["tensor"]]


# ---- settings --------------------------------------------------------------------------------------------------


def configured(result: Result, out: Path, component: str, **values: Any) -> None:
    """These settings are said as they were given."""
    assert settings_of(result, component).items() >= values.items()


# ---- planted defects --------------------------------------------------------------------------------------------


def slow_and_compiled(result: Result, out: Path, rank: int, delay_ms: int) -> None:
    """The model is compiled around a function that is not, and which sleeps on this rank."""
    configured(result, out, "compile", backend="aot_eager")
    assert settings_of(result, "compile")["graph_breaks"] >= 1
    slow_backward(result, out, rank, delay_ms)


def slow_backward(result: Result, out: Path, rank: int, delay_ms: int, times: int = 1) -> None:
    """An autograd function of this rank, and of no other, sleeps so many times a step."""
    for trace in read_traces(out):
        slept = [event["dur"] for event in trace["traceEvents"] if event.get("name") == "_SleepBackward"]
        slow = [duration_us for duration_us in slept if duration_us >= 1000 * delay_ms]
        if trace["tracekit"]["rank"] == rank:
            # On a busy machine a call without a delay may be that long, too.
            assert len(slow) >= times * len(trace["tracekit"]["steps"])


def slow_micro_batches(result: Result, out: Path, rank: int, delay_ms: int, micro_batches: int) -> None:
    """A step of a framework's optimizer has all its micro-batches; each backward pass of the rank is delayed."""
    slow_backward(result, out, rank, delay_ms // micro_batches, micro_batches)
    for row in result["phases"]["ranks"]:
        assert (row["micro_steps"], row["backward_passes"]) == (micro_batches, micro_batches * row["steps"])


def half_the_bytes(result: Result, out: Path) -> None:
    """Gradients of 32 bits are reduced as 16."""
    reduced = [row for row in result["communication"] if row["kind"] == "all_reduce"]
    steps = [row["steps"] for row in result["ranks"]]
    assert [row["size_bytes"] for row in reduced] == [SETTINGS_BYTES // 2 * count for count in steps]


def passes_keys_around(result: Result, out: Path, rank: int, delay_ms: int) -> None:
    """Keys and values of 32 places, 2 sequences and width 32 go to the next rank, and gradients of them come back."""
    slow_compute(result, out, rank, delay_ms)
    edges = [(edge["source"], edge["destination"], edge["joined"]) for edge in result["point_to_point"]]
    assert edges == [(0, 1, 2 * STEPS), (1, 0, 2 * STEPS)]
    assert {edge["size_bytes"] for edge in result["point_to_point"]} == {2 * STEPS * 2 * 32 * 2 * 32 * 4}


def slow_backward_of_twelve_layers(result: Result, out: Path) -> None:
    """Twelve layers and a head of 64 rows, forward and twice that backward, but for what no gradient is asked of."""
    slow_backward(result, out, rank=1, delay_ms=20)
    layer, head = 2 * 64 * 512 * 512, 2 * 64 * 512 * 10
    a_step = 12 * layer + 12 * layer + 11 * layer + 3 * head
    for row in result["roofline"]["by_rank"]:
        assert (row["flops"], row["recomputed_flops"], row["dtypes"]) == (row["steps"] * a_step, 0, ["float32"])
        assert (row["mfu"], row["hfu"]) == (None, None)
    assert result["roofline"]["unknown"]["peak"] == "the peak of CPUs is not known"


def slow_compute(result: Result, out: Path, rank: int, delay_ms: int) -> None:
    """That rank's compute contains the delay in every step."""
    computed_ns = [step["compute_ns"] for step in result["steps"] if step["rank"] == rank]
    assert len(computed_ns) == STEPS
    assert min(computed_ns) >= delay_ms * 1_000_000


def hot_expert(result: Result, out: Path) -> None:
    """240 tokens of 128 bytes on each of two ranks: 60 are for expert 0, 180 for expert 1."""
    rows = [row for row in result["tensor"] if row["module"] == "moe" and row["phase"] == "backward"]
    sent_or_received = {0: 240, 1: 360}  # whichever is more
    there_and_back = 2 * 128 * STEPS
    assert {row["rank"]: row["size_bytes"] for row in rows} == {
        rank: there_and_back * tokens for rank, tokens in sent_or_received.items()
    }
    assert {row["rank"]: row["ratio"] for row in result["expert_load"]} == {0: pytest.approx(1 / 3), 1: 3.0}
    # Either how much more the experts get, or how much longer the rank computes for it: whichever takes more time.
    (finding,) = [finding for finding in result["findings"] if "experts" in finding["text"]]
    evidence = finding["evidence"]
    assert (finding["rank"], evidence.get("ratio", evidence.get("expert_load"))) == (1, 3.0)


def slow_stage(result: Result, out: Path) -> None:
    """8 ms are 16 on stage 1, forward and in each half of the backward."""
    least_ms = {(0, "F"): 8, (0, "B"): 16, (1, "F"): 16, (1, "B"): 32}
    for row in result["pipeline"]["by_stage"]:
        assert row["mean_ns"] >= 1_000_000 * least_ms[row["stage"], row["kind"]]
    edges = [(edge["source"], edge["destination"], edge["joined"]) for edge in result["point_to_point"]]
    assert edges == [(0, 1, 8 * STEPS), (1, 0, 8 * STEPS)]
    (finding,) = [finding for finding in result["findings"] if finding["id"] == "uneven-stage"]
    assert (finding["rank"], finding["evidence"]["stage"]) == (1, 1)
    assert finding["evidence"]["factor"] > 1.5
    assert finding["saving_ns"] > 2 * finding["saving_error_ns"]


def slow_forward_stage(result: Result, out: Path) -> None:
    """8 ms a microbatch are 16 on stage 1."""
    edges = [(edge["source"], edge["destination"], edge["joined"]) for edge in result["point_to_point"]]
    assert edges == [(0, 1, 8 * STEPS)]
    (finding,) = [finding for finding in result["findings"] if finding["id"] == "uneven-stage"]
    assert (finding["rank"], finding["evidence"]["stage"]) == (1, 1)
    assert finding["evidence"]["factor"] > 1.5


def one_rank_at_a_time(result: Result, out: Path) -> None:
    """Of two ranks that never compute at the same time each is idle for half of the time or more, on average."""
    assert result["pipeline"]["bubble_ratio"] >= 0.5
    assert [edge["joined"] for edge in result["point_to_point"]] == [STEPS, STEPS]


def waits_for_data(result: Result, out: Path) -> None:
    """GIVEN a loader that sleeps 60 ms, 3 micro-batches, 2 checkpointed blocks and one infinite gradient."""
    assert min(step["data_ns"] for step in result["steps"]) >= 60_000_000
    (finding,) = [finding for finding in result["findings"] if finding["id"] == "data-loading"]
    assert finding["evidence"]["data_share"] > 0.05
    for row in result["phases"]["ranks"]:
        assert (row["steps"], row["micro_steps"], row["recompute_count"]) == (STEPS, 3, 3 * 2 * STEPS)
        assert (row["autocast"], row["scaled_steps"], row["skipped_steps"]) == (["float16"], STEPS, 1)
    layer = 2 * 16 * 64 * 256  # two of a block; only the first of a checkpointed one is needed once more
    for row in result["roofline"]["by_rank"]:
        assert (row["recomputed_flops"], row["recompute"]) == (STEPS * 3 * 2 * layer, "recorded")
        assert row["flops"] - row["recomputed_flops"] == STEPS * 3 * 4 * 2 * 3 * layer


def averaged_in_one_buffer(result: Result, out: Path) -> None:
    (finding,) = [finding for finding in result["findings"] if finding["id"] == "gradients-by-hand"]
    assert "1 all-reduce a step, after the backward pass" in finding["text"]
    evidence = finding["evidence"]
    assert (evidence["all_reduces_per_step"], evidence["in_backward"], evidence["parameters"]) == (1, 0, None)


def held_up_by_loading(result: Result, out: Path) -> None:
    """GIVEN rank 1 that loads 60 ms longer THEN it is named with that cause, and the delay is its own doing alone."""
    found = result["stragglers"]
    assert (found["rank"], found["cause"]) == (1, "data")
    assert found["caused_delay_ns"] > max(found["significance_ns"], 30_000_000)
    (finding,) = [finding for finding in result["findings"] if (finding["id"], finding["rank"]) == ("straggler", 1)]
    assert (finding["rank"], finding["evidence"]["cause"]) == (1, "data")
    assert finding["saving_ns"] > 0
    chain = {(row["rank"], row["kind"]): row["total_ns"] for row in result["critical_path"]}
    assert STEPS * 58_000_000 < chain[1, "data"] < STEPS * 120_000_000


def saved_by_one_rank(result: Result, out: Path) -> None:
    """GIVEN rank 0 that saves to a disk of 78 ms, and evaluations of 64 ms on all ranks, in each step."""
    found = {finding["cause"]: finding for finding in result["findings"]}
    saves, evaluation = found["checkpoint"], found["evaluation"]
    assert (saves["rank"], saves["evidence"]["wait_kind"]) == (0, "all_reduce")
    assert evaluation["ranks"] == []
    for finding, planted_ns in ((saves, 78_000_000), (evaluation, 64_000_000)):
        assert 0.95 * planted_ns <= finding["time_ns"] < 2 * planted_ns  # its peer comes a little later
        assert finding["saving_ns"] == pytest.approx(finding["time_ns"], rel=0.2)
    phases = {(part["rank"], part["phase"]): part["total_ns"] for part in result["phases"]["parts"]}
    assert phases[0, "checkpoint"] >= STEPS * 78_000_000
    assert phases[1, "checkpoint"] == 0
    assert min(phases[rank, "evaluation"] for rank in (0, 1)) >= STEPS * 64_000_000


def one_process(result: Result, out: Path) -> None:
    assert result["run"]["ranks"] == [0]


def moves_the_sequence(result: Result, out: Path) -> None:
    """Of 64 places, 2 sequences and width 32: half of queries, keys, values and results, or all keys and values."""
    a_step = 4 * 64 * 2 * 32 * 4 // 2
    assert {row["size_bytes"] for row in result["tensor"] if row["module"] == "attention"} == {STEPS * a_step}
