"""Lanes of CPU ranks: what is compute, what is blocked, what communicates. Expected values are computed by hand, in
us.
"""

from __future__ import annotations

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import Summarize
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.model.summary import RankSummary

NAMES = ("step", "compute", "comm", "overlapped_comm", "exposed_comm", "idle")


def parts(summary: RankSummary, step: int = 0) -> dict[str, float]:
    """Return the parts of a step in microseconds."""
    step_parts = summary.steps[step]
    assert step_parts.exposed_copy_ns == 0
    return {name: getattr(step_parts, f"{name}_ns") / 1000 for name in NAMES}


def of(*microseconds: float) -> dict[str, float]:
    """Return parts from length, compute, communication, overlapped and exposed communication, and idle time."""
    return dict(zip(NAMES, microseconds, strict=True))


def test_operators_and_spans(summarize: Summarize) -> None:
    """
    compute   10-30   40-60
    gloo        20-50             issued before, at 5
    """
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 20).op("aten::add", 40, 20)
    trace.gloo("all_reduce", 20, 30, issued_at=5)
    summary = summarize(trace)
    assert summary.device == "cpu"
    assert parts(summary) == of(100, 40, 30, 20, 10, 50)


def test_steps_last_until_the_next_begins(summarize: Summarize) -> None:
    trace = TraceBuilder().step(5, 0, 60).step(6, 100, 50).op("aten::mm", 90, 20)
    summary = summarize(trace)
    assert [(step.step, step.start_ns) for step in summary.steps] == [(5, trace.wall_ns(0)), (6, trace.wall_ns(100))]
    assert parts(summary, 0) == of(100, 10, 0, 0, 0, 90)
    assert parts(summary, 1) == of(50, 10, 0, 0, 0, 40)


def test_recorded_steps_take_precedence_over_spans(summarize: Summarize) -> None:
    trace = TraceBuilder().step(5, 0, 60).step(6, 100, 50).op("aten::mm", 90, 20).capture(last_step_closed=False)
    trace.label("ProfilerStep#7", 150, 10)  # a profiler opens this step when the window closes
    summary = summarize(trace)
    assert [(step.step, step.complete) for step in summary.steps] == [(5, True), (6, False)]
    assert summary.recorded_steps == (5, 6)


def test_operators_of_communication_block(summarize: Summarize) -> None:
    """(a): `c10d::*`, `_c10d_functional::*`, `wait_tensor` and the operators under them are no compute."""
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    trace.gloo("all_gather", 22, 17, issued_at=20, issued_for=20)  # blocks its caller
    trace.op("aten::copy_", 25, 5)
    trace.op("_c10d_functional::all_reduce", 50, 5).op("_c10d_functional::wait_tensor", 60, 20)
    summary = summarize(trace)
    assert parts(summary) == of(100, 10, 17, 0, 17, 73)


def test_recorded_waits_block(summarize: Summarize) -> None:
    """(b): inside the operator 50-90 a call issues at 51 and waits from 60 to 80. It computes nothing in between."""
    trace = TraceBuilder().step(0, 0, 100).op("Wrapper", 50, 40).wait(60, 20)
    trace.gloo("all_reduce", 52, 28, issued_at=51)
    summary = summarize(trace)
    assert parts(summary) == of(100, 1 + 10, 28, 0, 28, 100 - 11 - 28)


def test_an_operator_inside_the_issuing_operator_does_not_hide_the_wait(summarize: Summarize) -> None:
    """GIVEN a call that issues from 50 to 56, with another operator inside, and waits from 60 on."""
    trace = TraceBuilder().step(0, 0, 100).op("Wrapper", 40, 50).wait(60, 20)
    trace.gloo("all_reduce", 52, 28, issued_at=50, issued_for=6).op("aten::empty", 51, 2)
    assert parts(summarize(trace)) == of(100, 10 + 10, 28, 0, 28, 100 - 20 - 28)


def test_a_blocking_call_waits_from_its_issue_even_if_its_wait_begins_late(summarize: Summarize) -> None:
    """GIVEN a call that says that it blocks, on a machine so busy that its wait begins 2 ms after the issue."""
    trace = TraceBuilder().step(0, 0, 4000).op("Wrapper", 50, 3000).wait(2052, 20)
    trace.op("c10d::_allgather_base_", 51, 1, **{"Concrete Inputs": ["", "", "", "False", "-1"]})
    trace.event("gloo:all_gather", "user_annotation", 52, 2020, thread=trace.gloo_threads[0])
    assert parts(summarize(trace)) == of(4000, 1 + 978, 2020, 0, 2020, 4000 - 979 - 2020)


def test_a_wait_blocks_only_its_thread(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).op("aten::x", 10, 20).wait(10, 20).backward("MmBackward0", 15, 30)
    assert parts(summarize(trace)) == of(100, 30, 0, 0, 0, 70)


def test_waits_are_inferred_if_none_are_recorded(summarize: Summarize) -> None:
    """(c): the self time of the operator around a collective, while the collective is in flight.

    Wrapper   0-100   with the collective issued at 10, in flight until 60
    aten::mm  20-30   inside Wrapper: it computes
    """
    trace = TraceBuilder().step(0, 0, 200).op("Wrapper", 0, 100).op("aten::mm", 20, 10)
    trace.gloo("all_reduce", 11, 49, issued_at=10, issued_for=2)
    assert parts(summarize(trace)) == of(200, 10 + 10 + 40, 49, 10, 39, 101)


def test_a_collective_whose_wait_is_recorded_lets_its_operator_compute_until_then(summarize: Summarize) -> None:
    """GIVEN an operator 0-100 that issues at 10, a call that blocks at 65-72, a product, and its wait at 80-85."""
    trace = TraceBuilder().step(0, 0, 200).op("Wrapper", 0, 100).wait(80, 5)
    trace.gloo("all_reduce", 11, 49, issued_at=10, issued_for=2)
    trace.gloo("broadcast", 66, 6, issued_at=65, issued_for=1).wait(66, 6).op("aten::mm", 74, 2).capture()
    assert parts(summarize(trace)) == of(200, 100 - 2 - 7 - 5, 49 + 6, 48, 7, 200 - 86 - 7)


def test_what_a_capture_saw_no_wait_for_is_awaited_in_the_operator_around(summarize: Summarize) -> None:
    """GIVEN the reduction of DDP, which C++ code awaits, in a compiled step 0-100; a blocking call had its own wait."""
    trace = TraceBuilder().step(0, 0, 200).op("Torch-Compiled Region: 0/0", 0, 100)
    trace.gloo("broadcast", 5, 3, issued_at=4, issued_for=1).wait(5, 3)
    trace.gloo("all_reduce", 11, 49, issued_at=10, issued_for=2).capture()
    assert parts(summarize(trace)) == of(200, 100 - 4 - 50, 52, 0, 52, 200 - 46 - 52)


def test_labels_are_never_compute(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 5)
    for name in (
        "tracekit.pp:F s1 mb0",
        "Redistribute",
        "RedistributeBackward",
        "NestedRedistribute",
        "autograd::engine::evaluate_function: RedistributeBackward",
        "_ToTorchTensorBackward",
        "FSDP::all_gather (blocks.0)",
        "PP:0F0",
    ):
        trace.op(name, 0, 90)
    trace.label("my phase", 0, 100).label("DistributedDataParallel.forward", 0, 100)
    assert parts(summarize(trace)) == of(100, 5, 0, 0, 0, 95)


def test_a_generated_node_computes_only_in_its_operators(summarize: Summarize) -> None:
    """
    autograd::engine::evaluate_function: MmBackward0   5-95
      MmBackward0                                       8-90
        aten::mm (of DTensors)                           50-85
          PythonSubclass                                  52-80
            aten::mm                                        60-70
    """
    trace = TraceBuilder().step(0, 0, 100).op("autograd::engine::evaluate_function: MmBackward0", 5, 90)
    trace.op("MmBackward0", 8, 82).op("aten::mm", 50, 35).op("PythonSubclass", 52, 28).op("aten::mm", 60, 10)
    trace.gloo("all_reduce", 0, 40)
    assert parts(summarize(trace)) == of(100, 10, 40, 0, 40, 50)


def test_an_operator_that_is_decomposed_computes_only_in_its_parts(summarize: Summarize) -> None:
    """A DTensor's `view_as` between an all-reduce and the wait for it, as a busy machine records it: the thread loses
    its core before the operator dispatches.

    _c10d_functional::all_reduce   0-90         with c10d::allreduce_ at 40
    _ToTorchTensor                 300-600
      aten::view_as                  310-580
        aten::view                     525-575
          PythonSubclass                 530-572
            aten::view                     559-561
    aten::add                      610-770
      PythonSubclass                 614-768
        wait_tensor                    720-724
        aten::add                        750-760
    gloo:all_reduce                150-520
    """
    trace = TraceBuilder().step(0, 0, 1000).op("_c10d_functional::all_reduce", 0, 90)
    trace.gloo("all_reduce", 150, 370, issued_at=40).op("_ToTorchTensor", 300, 300)
    trace.op("aten::view_as", 310, 270).op("aten::view", 525, 50).op("PythonSubclass", 530, 42).op("aten::view", 559, 2)
    trace.op("aten::add", 610, 160).op("PythonSubclass", 614, 154).op("_c10d_functional::wait_tensor", 720, 4)
    trace.op("aten::add", 750, 10)
    assert parts(summarize(trace)) == of(1000, 10, 370, 0, 370, 1000 - 10 - 370)


def test_a_view_computes_nothing(summarize: Summarize) -> None:
    """GIVEN a view between an asynchronous reduction and its wait, for which a busy machine takes long, and a linear
    layer with a view inside.
    """
    trace = TraceBuilder().step(0, 0, 1000).gloo("all_reduce", 60, 300, issued_at=40).op("aten::view", 70, 280)
    trace.wait(355, 10).op("aten::linear", 400, 50).op("aten::t", 402, 8).op("aten::addmm", 412, 36)
    assert parts(summarize(trace)) == of(1000, 50, 300, 0, 300, 1000 - 50 - 300)


def test_operators_on_other_threads_are_not_compute(summarize: Summarize) -> None:
    """Operators on the step's thread and autograd's count; those on a loader's or Gloo's threads do not."""
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).backward("MmBackward0", 20, 10)
    trace.gloo("all_reduce", 40, 20, issued_at=11, thread=trace.autograd)
    trace.op("aten::add_", 45, 10, thread=trace.gloo_threads[0])
    trace.backward("CopyBackwards", 47, 3, thread=trace.gloo_threads[0])
    trace.op("aten::stack", 60, 30, thread=9999)
    assert parts(summarize(trace)) == of(100, 20, 20, 0, 20, 60)


def test_send_and_receive_are_communication(summarize: Summarize) -> None:
    """They lie on the calling thread, not nested, from the call to the end of the wait."""
    trace = TraceBuilder().step(0, 0, 100).gloo("recv", 10, 30).op("aten::mm", 20, 10).gloo("send", 35, 15)
    summary = summarize(trace)
    assert parts(summary) == of(100, 10, 40, 10, 30, 60)
    assert {(row.kind, row.count, row.total_ns, row.exposed_ns) for row in summary[COMMUNICATION_SUMS]} == {
        ("recv", 1, 30_000, 15_000),
        ("send", 1, 15_000, 15_000),
    }


def test_a_reduce_scatter_that_gloo_runs_as_all_reduce_keeps_its_kind(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100)
    trace.gloo("reduce_scatter", 10, 10, issued_at=8).gloo("all_reduce", 30, 10, issued_at=28)
    rows = [(row.kind, row.count) for row in summarize(trace)[COMMUNICATION_SUMS]]
    assert sorted(rows) == [("all_reduce", 1), ("reduce_scatter", 1)]


def test_spans_queue_behind_their_operators(summarize: Summarize) -> None:
    """GIVEN three buckets issued in backward, the last of which runs during the optimizer THEN all belong to
    backward.
    """
    trace = TraceBuilder().step(0, 0, 100).backward("MmBackward0", 10, 20)
    for i, at in enumerate((30, 50, 70)):
        trace.gloo("all_reduce", at, 20, issued_at=12 + i, elements=100 * (i + 1), thread=trace.autograd)
    trace.label("Optimizer.step#SGD.step", 60, 35)
    (row,) = summarize(trace)[COMMUNICATION_SUMS]
    assert (row.phase, row.count, row.size_bytes, row.total_ns) == ("backward", 3, 2400, 60_000)


def test_a_trace_without_work(summarize: Summarize) -> None:
    summary = summarize(TraceBuilder().label("phase", 0, 10))
    assert summary[COMMUNICATION_SUMS] == ()
    assert {note.id for note in summary.notes} == {"no-steps", "nothing-ran"}
    only_labels = summarize(TraceBuilder().step(0, 0, 10))
    assert only_labels.steps == ()
    assert only_labels.unmeasured == "it has no kernel, operator or collective that took any time"
