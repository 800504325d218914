"""The finding on gradients that the loop averages by hand, and what DDP's buckets would save, with known times.

The gradients of ten layers come every 10 ms. They have 200 and 600 kB in turn. Reductions take 1 ms and 10 ns a byte:
3 and 7 ms, 50 ms together. After each one the loop divides for 0.5 ms.

    |--g--|--g--| ... |--g--|= 3 ms =|/|= 7 ms =|/| ...      after the backward pass
    |--g--|= 3 ms =|/|--g--|= 7 ms =|/| ...                  in hooks
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import exchanges
from tests.builders import TraceBuilder, write_run
from tracekit.explain.ddp.bucket_whatif import CapOutcome
from tracekit.explain.ddp.manual_gradients import manual_data_parallel, manual_whatif
from tracekit.explain.ddp.tables import ManualReductions
from tracekit.explain.section import Unavailable
from tracekit.loading.load import load
from tracekit.model.metadata import CommunicationUse
from tracekit.model.run import Run

LAYERS, EVERY, DIVISION, STEP = 10, 10_000, 500, 200_000  # microseconds
ELEMENTS = [50_000, 150_000] * 5
ALL_ELEMENTS = sum(ELEMENTS)


def took(elements: int) -> int:
    return 1_000 + 4 * elements // 100


def reduce(trace: TraceBuilder, at: int, elements: int) -> int:
    """Reduce and divide, and return the end."""
    end = at + took(elements)
    trace.gloo("all_reduce", at, end - at, issued_at=at, elements=elements).wait(at + 1, end - at - 1)
    trace.op("aten::div_", end, DIVISION)
    return end + DIVISION


def rank(
    number: int, *, how: str, slower: int = 0, steps: int = 4, shapes: bool = True, elements: int = 0
) -> TraceBuilder:
    """Return the trace of a rank. `slower`: how much later each gradient comes. `elements`: of all flat reductions."""
    trace = TraceBuilder(number, 2)
    for step in range(steps):
        begin = now = step * STEP
        trace.step(step, begin, STEP)
        for layer in range(LAYERS):
            trace.op("MmBackward0", now + 10, EVERY + slower - 20)
            now += EVERY + slower
            arguments = {"Input Dims": [[ELEMENTS[layer]]], "Input type": ["float"]} if shapes else {}
            trace.op("torch::autograd::AccumulateGrad", now - 5, 5, **arguments)
            if how == "hooks":
                now = reduce(trace, now, ELEMENTS[layer])
        trace.event("tracekit.backward", "cpu_op", begin + 5, now - begin - 5, args={})
        for each in {"after": ELEMENTS, "flat": [elements or ALL_ELEMENTS], "hooks": []}[how]:
            now = reduce(trace, now, each)
    trace.capture(clock=[(0, 0, 0)])
    assert trace.metadata is not None
    use = CommunicationUse(group=0, purpose="gradients", calls=10, in_backward=0, parameters=LAYERS)
    trace.metadata = replace(trace.metadata, strategies=["manual_dp"], uses=[use])
    return trace


def outcome(run: Run) -> CapOutcome:
    result = manual_whatif(run)
    assert isinstance(result, CapOutcome)
    return result


def test_buckets_hide_all_but_the_last_reduction(tmp_path: Path) -> None:
    """GIVEN reductions after the backward pass: the last ends 50 ms and nine divisions after the last gradient.

    THEN buckets of 1.6, 1.6 and 0.8 MB expose the last one, 9 ms, and what a fifth of the copies takes.
    """
    run = load(write_run(tmp_path, [rank(number, how="after") for number in (0, 1)]))
    result = outcome(run)

    assert (result.bucket_cap_mb, result.buckets) == (1, 3)
    assert result.saving_ns / 1e6 == pytest.approx(50 + 9 * 0.5 - 9 - 9 * 0.5 / 5, abs=0.3)
    assert result.error_ns < 0.05 * result.saving_ns
    (finding,) = manual_data_parallel(run)
    assert (finding.saving_ns, finding.saving_error_ns) == (result.saving_ns, result.error_ns)
    assert "DistributedDataParallel with bucket_cap_mb=1," in (finding.action or "")
    assert "no_replay" not in finding.evidence


def test_hooks_that_wait_hold_up_the_backward_pass(tmp_path: Path) -> None:
    """GIVEN a wait and a division after each gradient THEN the waits go, but for the last bucket's."""
    result = outcome(load(write_run(tmp_path, [rank(number, how="hooks") for number in (0, 1)])))

    assert (result.bucket_cap_mb, result.buckets) == (1, 3)
    assert result.saving_ns / 1e6 == pytest.approx(50 - 9, abs=0.5)


def test_one_flat_reduction_gains_from_buckets_though_the_latency_is_not_known(tmp_path: Path) -> None:
    """GIVEN reductions of one size, 4 MB in 41 ms THEN the error takes in that its latency may be anything."""
    result = outcome(load(write_run(tmp_path, [rank(number, how="flat") for number in (0, 1)])))

    assert result.bucket_cap_mb is not None
    assert abs(result.saving_ns / 1e6 - (41 - 9)) <= max(2 * result.error_ns / 1e6, 3)


def test_a_rank_whose_gradients_come_late_holds_up_the_buckets_as_well(tmp_path: Path) -> None:
    """GIVEN a rank that computes 1 ms longer for each layer THEN it waits for no one, and saves as much."""
    ranks = [rank(number, how="after", slower=1_000 * number) for number in (0, 1)]
    result = outcome(load(write_run(tmp_path, ranks)))

    assert result.saving_ns / 1e6 == pytest.approx(50 + 9 * 0.5 - 9 - 9 * 0.5 / 5, abs=0.5)


def test_what_cannot_be_replayed_has_no_saving(tmp_path: Path) -> None:
    """GIVEN reductions that are not of all gradients, a trace without shapes, or one rank alone."""
    cases = {
        "part": [rank(number, how="flat", elements=1234) for number in (0, 1)],
        "shapes": [rank(number, how="after", shapes=False) for number in (0, 1)],
        "alone": [rank(0, how="after")],
    }
    for name, ranks in cases.items():
        run = load(write_run(tmp_path / name, ranks))
        assert isinstance(manual_whatif(run), Unavailable), name
        (finding,) = manual_data_parallel(run)
        assert (finding.saving_ns, "not all gradients" in str(finding.evidence["no_replay"])) == (None, True)


# ---- the finding alone: two ranks of two steps of 100 ns, all alike, of a model of four parameters ------------------


def run_with(*, count: int, in_backward: bool, exposed_ns: int) -> Run:
    number = np.arange(2 * count)
    columns = dict.fromkeys(("ready_ns", "start_ns", "end_ns", "uncovered_ns", "size_bytes"), number)
    reductions = ManualReductions(
        module=np.zeros(2 * count, dtype=np.int32),
        index=number.astype(np.int32),
        step=1 + number // count,
        backward_pass=np.full(2 * count, -1, dtype=np.int32),
        launch_ns=number,
        added_ns=np.full(2 * count, exposed_ns // count),
        in_backward=np.full(2 * count, in_backward),
        parameters=np.full(2 * count, 4, dtype=np.int32),
        **columns,
    )
    ranks = [exchanges.rank(each, steps=(1, 2), manual_reductions=reductions) for each in range(2)]
    return exchanges.run_of(ranks)


def test_all_reduces_after_the_backward_pass_are_a_warning() -> None:
    """GIVEN four all-reduces after the backward pass, 20 of 100 ns exposed."""
    (finding,) = manual_data_parallel(run_with(count=4, in_backward=False, exposed_ns=20))

    assert (finding.severity, finding.saving_ns, finding.time_ns) == ("warning", None, 20)
    assert "4 all-reduces a step, one a parameter, after the backward pass" in finding.text
    assert finding.cause == "transfer"
    assert finding.action is not None
    assert "use DistributedDataParallel" in finding.action
    assert finding.evidence == {
        "all_reduces_per_step": 4,
        "parameters": 4,
        "in_backward": 0,
        "after_backward": True,
        "exposed_ns": 20,
        "exposed_share": 0.2,
        "no_replay": "not all gradients, or not all ranks that reduce together, are recorded",
    }


def test_a_short_reduction_in_the_backward_pass_is_only_a_note() -> None:
    """GIVEN one all-reduce in the backward pass, 4 of 100 ns exposed."""
    (finding,) = manual_data_parallel(run_with(count=1, in_backward=True, exposed_ns=4))

    assert (finding.severity, finding.saving_ns, finding.time_ns) == ("info", None, 4)
    assert "1 all-reduce a step, one by one in the backward pass" in finding.text


def test_without_such_reductions_there_is_no_finding() -> None:
    assert manual_data_parallel(exchanges.run_of([exchanges.rank(0), exchanges.rank(1)])) == ()
