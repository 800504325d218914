"""Tokens that all-to-alls bring to each rank's experts, with known splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.explain.model_parallel.experts import LAYERS, exchange_tokens
from tracekit.explain.model_parallel.expert_load import expert_load
from tracekit.model.metadata import Group
from tracekit.model.table import records
from tracekit.report.report import Report, analyze

WIDTH = 32
TOKEN_BYTES = 4 * WIDTH
STEP_US = 2000
HOT = [120, 120, 360, 120]  # tokens for the experts of each rank, of 180 that each of four ranks has
EVEN = [180, 180, 180, 180]
Exchange = Callable[[TraceBuilder, int, int, int, int], None]  # at, for, received, sent


def on_gloo(trace: TraceBuilder, at: int, during: int, received: int, sent: int, dtype: str = "float") -> None:
    tensors = [[received, WIDTH], [sent, WIDTH], [], [], [], [], []]
    types = [dtype, dtype, "", "ScalarList", "ScalarList", "Scalar", "Scalar"]
    trace.op("c10d::alltoall_base_", at, 1, **{"Input Dims": tensors, "Input type": types})
    inputs = {"Concrete Inputs": [""], "Input type": [dtype], "Input Dims": [[sent, WIDTH]]}
    trace.event("gloo:all_to_all", "user_annotation", at + 1, during, thread=trace.gloo_threads[0], args=inputs)


def on_nccl(trace: TraceBuilder, at: int, during: int, received: int, sent: int) -> None:
    elements = {"In msg nelems": sent * WIDTH, "Out msg nelems": received * WIDTH}
    trace.nccl("all_to_all", at + 1, during, launched_at=at, **elements)


def there_and_back(trace: TraceBuilder, exchange: Exchange, at: int, loads: Sequence[int], wait_us: int = 0) -> None:
    """Tokens to the experts and back to the ranks that they came from, forward and backward: 180 a rank."""
    load = loads[trace.rank]
    for begin in (at, at + 400):
        exchange(trace, begin, 10, load, 180)
        exchange(trace, begin + 200, 10 + wait_us, 180, load)


def run_of(
    tmp_path: Path,
    loads_of_steps: Sequence[Sequence[int]],
    exchange: Exchange = on_gloo,
    *,
    ranks: Sequence[int] = range(4),
    wait_us: int = 0,
    parallelism: str | None = None,
) -> Report:
    """A step for each of `loads_of_steps`; ranks other than 2 are in the exchanges back `wait_us` longer."""
    traces = []
    for rank in ranks:
        trace = TraceBuilder(rank, 4)
        for step, loads in enumerate(loads_of_steps):
            trace.step(step, step * STEP_US, STEP_US)
            there_and_back(trace, exchange, step * STEP_US + 100, loads, wait_us=0 if rank == 2 else wait_us)
        if parallelism:
            trace.capture(
                groups=[Group(id=0, name="0", desc="", backend="gloo", parallelism=parallelism, ranks="world")]
            )
        if exchange is on_nccl:
            trace.kernel("gemm", 20, 30, launched_at=15)
        traces.append(trace)
    return analyze(write_run(tmp_path, traces))


def findings(report: Report) -> list[str]:
    assert report.tensor.experts is not None
    return [finding.text for finding in report.tensor.experts.findings]


@pytest.mark.parametrize("exchange", [on_gloo, on_nccl])
def test_the_rank_whose_experts_get_three_times_the_tokens_is_named(tmp_path: Path, exchange: Exchange) -> None:
    report = run_of(tmp_path, [HOT] * 3, exchange)
    assert report.tensor.experts is not None
    (finding,) = report.tensor.experts.findings
    assert finding.rank == 2
    assert "the experts of rank 2 receive 3.00 times the mean of the others" in finding.text
    rows = {row["rank"]: row for row in records(report.tensor.experts.ranks)}
    # Twice a step, forward and backward; what is taken back does not count.
    assert {rank: row["received_bytes"] for rank, row in rows.items()} == {
        rank: 2 * tokens * TOKEN_BYTES for rank, tokens in enumerate(HOT)
    }
    assert (rows[2]["ratio"], rows[2]["received_share"], rows[0]["ratio"]) == (3.0, 0.5, pytest.approx(0.6))


def test_even_loads_are_no_finding(tmp_path: Path) -> None:
    report = run_of(tmp_path, [EVEN] * 3)
    assert report.tensor.experts is not None
    assert findings(report) == []
    assert {row["ratio"] for row in records(report.tensor.experts.ranks)} == {1.0}


def test_a_load_that_differs_as_much_from_step_to_step_is_no_finding(tmp_path: Path) -> None:
    assert findings(run_of(tmp_path, [HOT, EVEN, [300, 180, 60, 180], [60, 60, 540, 60]])) == []


def test_a_router_that_sends_all_tokens_to_one_rank_is_named(tmp_path: Path) -> None:
    (text,) = findings(run_of(tmp_path, [[0, 0, 720, 0]] * 3))
    assert "experts of rank 2 receive nearly all tokens" in text


def test_one_step_is_no_finding(tmp_path: Path) -> None:
    assert findings(run_of(tmp_path, [HOT])) == []


def test_the_saving_is_how_long_others_wait_for_the_busiest_rank(tmp_path: Path) -> None:
    """GIVEN two exchanges a step in which the others take 400 us longer. THEN even loads would save 3/4 of that."""
    report = run_of(tmp_path, [HOT] * 3, wait_us=150)
    assert report.tensor.experts is not None
    (finding,) = report.tensor.experts.findings
    assert finding.severity == "warning"
    assert finding.evidence["waiting_ns"] == 2 * 150_000
    assert (finding.cause, finding.time_ns) == ("expert_load", 2 * 150_000)
    assert finding.action is not None
    assert "even out the load" in finding.action


def test_without_waits_there_is_no_saving(tmp_path: Path) -> None:
    (finding,) = run_of(tmp_path, [HOT] * 3).tensor.experts.findings
    assert (finding.severity, finding.action) == ("info", None)


@pytest.mark.parametrize(("parallelism", "named"), [("ep", 1), ("cp", 0), ("dp", 0)])
def test_only_groups_that_may_be_for_experts_count(tmp_path: Path, parallelism: str, named: int) -> None:
    assert len(findings(run_of(tmp_path, [HOT] * 3, parallelism=parallelism))) == named


@pytest.mark.parametrize(("parallelism", "inferred"), [("ep", False), (None, True)])
def test_the_purpose_of_a_group_without_one_is_inferred(
    tmp_path: Path, parallelism: str | None, inferred: bool
) -> None:
    (text,) = findings(run_of(tmp_path, [HOT] * 3, parallelism=parallelism))
    assert ("(inferred: all-to-alls of uneven sizes)" in text) == inferred


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    (text,) = findings(run_of(tmp_path, [HOT] * 3, ranks=[0, 2], parallelism="ep"))
    assert "receive 3.00 times the mean of the others (2 of the group's 4 ranks recorded)" in text


def test_one_uneven_layer_is_named(tmp_path: Path) -> None:
    """GIVEN three layers, of which one brings rank 1 three times as much."""
    group = Group(id=0, name="0", desc="", backend="gloo", parallelism="ep", ranks="world")
    traces = []
    for rank in range(4):
        trace = TraceBuilder(rank, 4)
        for step in range(3):
            trace.step(step, step * STEP_US, STEP_US)
            for layer in range(3):
                at = step * STEP_US + 500 * layer + 10
                trace.label(f"tracekit.module:blocks.{layer}.moe", at, 450)
                loads = [120, 360, 120, 120] if layer == 1 else EVEN
                on_gloo(trace, at + 20, 10, loads[rank], 180)
                on_gloo(trace, at + 200, 10, 180, loads[rank])
        traces.append(trace.capture(groups=[group]))
    report = analyze(write_run(tmp_path, traces))
    (found,) = findings(report)
    assert found.endswith("the experts of rank 1 receive 3.00 times the mean of the others in blocks.1.moe")
    assert report.tensor.experts is not None
    ratios = {(row["module"], row["rank"]): row["ratio"] for row in records(report.tensor.experts.ranks)}
    assert (ratios["blocks.1.moe", 1], ratios["blocks.0.moe", 1]) == (3.0, 1.0)


# ---- without sizes --------------------------------------------------------------------------------------------------


def test_without_sizes_the_load_is_estimated_from_what_the_experts_compute() -> None:
    """GIVEN experts of rank 2 that compute twice as long as the others', 12.8 us a step."""
    result = expert_load(exchange_tokens((0.8, 0.8, 1.6, 0.8)).run())
    rows = {row["rank"]: row for row in records(result.ranks)}

    assert (rows[2]["compute_ns"], rows[2]["ratio"], rows[2]["received_share"]) == (LAYERS * 3200, 2.0, 0.4)
    assert {row["received_bytes"] for row in rows.values()} == {None}
    (finding,) = result.findings
    assert (finding.rank, finding.remedy, finding.evidence["estimated"]) == (2, "load", True)
    assert finding.evidence["waiting_ns"] == LAYERS * 1600
    assert (
        "2.00 times the mean of the others (estimated from how long they compute, not from counts of tokens)"
        in finding.text
    )


def test_a_slow_rank_has_an_even_load() -> None:
    result = expert_load(exchange_tokens(pace={2: 2.0}).run())

    assert result.findings == ()
    assert {row["ratio"] for row in records(result.ranks)} == {1.0}
