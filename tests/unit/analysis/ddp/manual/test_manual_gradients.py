"""The finding on gradients that the loop averages by hand. Steps take 100 ns, of which the reductions expose a part."""

from __future__ import annotations

from tests.unit.analysis.exchanges import rank, run_of
from tracekit.analysis.ddp.manual.manual_gradients import manual_data_parallel
from tracekit.analysis.ddp.parts import GradientSum
from tracekit.model.run import Run


def run_with(*, count: int, in_backward: int, exposed_ns: int) -> Run:
    """Return two ranks of two steps, all alike, of a model of four parameters."""
    sums = tuple(
        GradientSum(
            step=step,
            count=count,
            in_backward=in_backward,
            parameters=4,
            exposed_ns=exposed_ns,
        )
        for step in (1, 2)
    )
    return run_of([rank(number, steps=(1, 2), manual_gradients=sums) for number in range(2)])


def test_all_reduces_after_the_backward_pass_are_a_warning() -> None:
    """GIVEN four all-reduces after the backward pass, 20 of 100 ns exposed."""
    (finding,) = manual_data_parallel(run_with(count=4, in_backward=0, exposed_ns=20))

    assert (finding.severity, finding.saving_ns, finding.time_ns) == ("warning", None, 20)
    assert "4 all-reduces a step, one a parameter, after the backward pass" in finding.text
    assert finding.cause == "transfer"
    assert finding.action is not None
    assert "use DistributedDataParallel" in finding.action
    assert finding.evidence == {
        "all_reduces_per_step": 4,
        "parameters": 4,
        "in_backward": 0,
        "exposed_ns": 20,
        "exposed_share": 0.2,
        "no_replay": "not all gradients, or not all ranks that reduce together, are recorded",
    }


def test_a_short_reduction_in_the_backward_pass_is_only_a_note() -> None:
    """GIVEN one all-reduce in the backward pass, 4 of 100 ns exposed."""
    (finding,) = manual_data_parallel(run_with(count=1, in_backward=1, exposed_ns=4))

    assert (finding.severity, finding.saving_ns, finding.time_ns) == ("info", None, 4)
    assert "1 all-reduce a step, one by one in the backward pass" in finding.text


def test_without_such_reductions_there_is_no_finding() -> None:
    assert manual_data_parallel(run_of([rank(0), rank(1)])) == ()
