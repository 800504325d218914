"""Forward and backward passes of one rank, from labels or from launches. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.builders import TraceBuilder
from tracekit.loading.recording import recording_of
from tracekit.model.spans import ACTION_KINDS
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.rank.passes import Passes, kinds_in_order, rank_passes
from tracekit.rank.steps import HostSteps, StepWindows
from tracekit.read.decode.portable import decode

Pass = tuple[str, int, float, float]  # kind, microbatch, start, end
PassesOf = Callable[..., list[Pass]]


@pytest.fixture
def passes_of(tmp_path: Path) -> PassesOf:
    """Return a function that gives the passes of a trace whose messages were issued at some times."""

    def run(trace: TraceBuilder, issued: Sequence[float] = (), sent: Sequence[bool] = ()) -> list[Pass]:
        decoded = decode(trace.write(tmp_path / "rank0.json", "compact"))
        lanes = recording_of(decoded, DEFAULT_RULES).lanes
        issue_ns = np.array([trace.wall_ns(at_us) for at_us in issued], dtype=np.int64)
        is_send = np.array(sent or [True] * len(issued), dtype=np.bool_)
        passes = rank_passes(decoded.events, lanes, issue_ns, is_send)
        zero_ns = trace.wall_ns(0)
        return [
            (ACTION_KINDS[kind], microbatch, (start_ns - zero_ns) / 1000, (end_ns - zero_ns) / 1000)
            for kind, microbatch, start_ns, end_ns in zip(
                passes.kind.tolist(),
                passes.microbatch.tolist(),
                passes.start_ns.tolist(),
                passes.end_ns.tolist(),
                strict=True,
            )
        ]

    return run


def forward(trace: TraceBuilder, at_us: float, *, number: int, kernel_at: float, for_us: float = 20) -> None:
    """An operator that joins the autograd graph and launches a kernel."""
    trace.op("aten::mm", at_us, 3, **{"Sequence number": number, "Fwd thread id": 0})
    trace.kernel("gemm", kernel_at, for_us, launched_at=at_us + 1)


def backward(trace: TraceBuilder, at_us: float, *, number: int, kernel_at: float) -> None:
    """What the autograd engine does in the backward of `forward`, on the thread of the loop for simplicity."""
    name = "autograd::engine::evaluate_function: MmBackward0"
    trace.op(name, at_us, 3, **{"Sequence number": number, "Fwd thread id": 1})
    trace.kernel("gemm", kernel_at, 40, launched_at=at_us + 1)


def test_a_label_names_the_microbatch_of_its_pass(passes_of: PassesOf) -> None:
    trace = TraceBuilder().step(0, 0, 300)
    for name, at_us in (("Forward 3", 0), ("forward_4", 20), ("Backward 3", 40), ("Forward pass", 60)):
        trace.label(name, at_us, 10)

    assert passes_of(trace) == [("F", 3, 0, 10), ("F", 4, 20, 30), ("B", 3, 40, 50)]


def test_a_message_in_a_label_is_no_part_of_its_pass(passes_of: PassesOf) -> None:
    """GIVEN a loop that receives within its label THEN the pass begins with its first launch of compute."""
    trace = TraceBuilder().step(0, 0, 300).label("Forward 0", 0, 100)
    trace.kernel("ncclDevKernel_SendRecv()", 10, 60, stream=20, launched_at=5)
    trace.kernel("gemm", 80, 20, launched_at=40).kernel("gemm", 100, 20, launched_at=60)

    assert passes_of(trace) == [("F", 0, 40, 60.001)]


def test_a_pass_is_what_was_launched_in_one_direction_between_two_messages(passes_of: PassesOf) -> None:
    trace = TraceBuilder().step(0, 0, 1000)
    forward(trace, 10, number=0, kernel_at=100)
    forward(trace, 20, number=1, kernel_at=120)
    forward(trace, 40, number=2, kernel_at=140)
    backward(trace, 60, number=2, kernel_at=200)
    backward(trace, 80, number=1, kernel_at=240)
    backward(trace, 90, number=0, kernel_at=280)

    assert passes_of(trace, issued=(30, 50, 70)) == [
        ("F", -1, 11, 21.001),
        ("F", -1, 41, 41.001),
        ("B", -1, 61, 61.001),
        ("B", -1, 81, 91.001),
    ]


def on_cpu(trace: TraceBuilder, at_us: float, for_us: float = 20) -> None:
    trace.op("aten::mm", at_us, for_us)


def test_on_a_cpu_the_operators_between_two_messages_are_a_forward_pass(passes_of: PassesOf) -> None:
    """GIVEN a middle stage that makes a buffer, receives into it, computes with two operators, and sends, twice."""
    trace = TraceBuilder().step(0, 0, 300)
    for at_us in (0, 100):
        trace.op("aten::empty", at_us + 1, 5)
        on_cpu(trace, at_us + 20)
        on_cpu(trace, at_us + 45, 30)
    trace.capture()

    assert passes_of(trace, issued=(10, 80, 110, 180), sent=(False, True, False, True)) == [
        ("F", -1, 20, 75),
        ("F", -1, 120, 175),
    ]


def test_operators_that_get_nothing_from_a_message_and_give_nothing_to_one_are_no_pass(passes_of: PassesOf) -> None:
    """GIVEN a last stage that normalises labels before it receives, and a mean of losses after it has sent."""
    trace = TraceBuilder().step(0, 0, 300)
    on_cpu(trace, 1)
    on_cpu(trace, 50)
    trace.label("tracekit.backward", 80, 30)
    on_cpu(trace, 150)
    trace.capture()

    assert passes_of(trace, issued=(30, 120), sent=(False, True)) == [("F", -1, 50, 70), ("B", -1, 80, 110)]


def test_operators_whose_names_begin_like_those_without_work_are_passes(passes_of: PassesOf) -> None:
    """GIVEN a router of experts that chooses with topk, not with to."""
    trace = TraceBuilder().step(0, 0, 300)
    trace.op("aten::topk", 20, 30)
    trace.capture()

    assert passes_of(trace, issued=(10, 60), sent=(False, True)) == [("F", -1, 20, 50)]


def test_passes_end_at_the_wait_for_what_was_posted_before(passes_of: PassesOf) -> None:
    """GIVEN a last stage that posts both receives at once, and waits for each before its forward."""
    trace = TraceBuilder().step(0, 0, 300)
    for at_us in (20, 100):
        trace.gloo("recv", at_us - 10, 20, issued_at=at_us - 10).wait(at_us - 5, 16)
        on_cpu(trace, at_us + 20, 40)
    trace.capture()

    assert passes_of(trace, issued=(5, 6), sent=(False, False)) == [("F", -1, 40, 80), ("F", -1, 120, 160)]


def test_without_messages_and_labels_there_are_no_passes(passes_of: PassesOf) -> None:
    trace = TraceBuilder().step(0, 0, 1000)
    forward(trace, 10, number=0, kernel_at=100)

    assert passes_of(trace) == []


def kinds_of(turns: Sequence[str], exchanges: Sequence[str], *, step_after: int = 99) -> list[str]:
    """Return the letter of the kind that each message is of, or "?".

    turns: the passes before each exchange, and behind the last one. exchanges: in order of issue, < or >. A new step
    begins with the turn `step_after`.
    """
    starts, kinds, issued, directions, before, after = [], [], [], [], [], []
    at, begins = 0, [0]
    for number, turn in enumerate(turns):
        if number == step_after:
            begins.append(at)
        for letter in turn:
            starts.append(at)
            kinds.append(ACTION_KINDS.index(letter))
            at += 100
        for direction in exchanges[number] if number < len(exchanges) else "":
            issued.append(at)
            directions.append(direction == ">")
            after.append(ACTION_KINDS.index(turn[-1]))
            before.append(ACTION_KINDS.index(turns[number + 1][0]))
            at += 1
    count, passes = len(starts), np.array(starts, dtype=np.int64)
    none = np.full(count, -1, dtype=np.int32)
    begin_ns = np.array(begins, dtype=np.int64)
    end_ns = np.append(begin_ns[1:], at + 1)
    windows = StepWindows(
        host=HostSteps(
            step=np.arange(len(begins)),
            start_ns=begin_ns,
            end_ns=end_ns,
            data_ns=np.full(len(begins), -1),
            closed=np.ones(len(begins), dtype=np.bool_),
            thread=-1,
            source="spans",
        ),
        start_ns=begin_ns,
        end_ns=end_ns,
        data_ns=np.full(len(begins), -1),
        complete=np.ones(len(begins), dtype=np.bool_),
    )
    sent, received = kinds_in_order(
        Passes(start_ns=passes, end_ns=passes + 90, kind=np.array(kinds, np.int32), module=none, microbatch=none),
        windows,
        np.array(issued, dtype=np.int64),
        np.array(directions),
        np.array(after, dtype=np.int32),
        np.array(before, dtype=np.int32),
    )
    found = np.where(directions, sent, received).tolist()
    return ["?" if kind < 0 else ACTION_KINDS[kind] for kind in found]


def test_what_is_sent_after_one_pass_is_its_result() -> None:
    assert kinds_of(["F", "F", "B", "B"], [">", "><", "><"]) == ["F", "F", "B", "B", "B"]


def test_what_a_turn_of_two_passes_exchanges_is_of_both_in_their_order() -> None:
    assert kinds_of(["FB", "FB"], [">><<"]) == ["F", "B", "F", "B"]
    assert kinds_of(["FB", "FB"], [">>>><<<<"]) == [*"FFBB", *"FFBB"]  # two tensors each


def test_one_message_of_a_turn_of_two_passes_may_be_of_either() -> None:
    assert kinds_of(["FB", "FB"], ["><"]) == ["?", "?"]


def test_turns_end_with_their_step() -> None:
    assert kinds_of(["B", "F", "F"], ["", ">"], step_after=1) == ["F"]
    assert kinds_of(["B", "F", "F"], ["", ">"]) == ["?"]


def test_on_a_cpu_what_the_engine_runs_between_messages_is_a_backward(passes_of: PassesOf) -> None:
    """GIVEN a stage that receives before and sends behind each pass, recorded without the capture."""
    trace = TraceBuilder().step(0, 0, 200)
    for at_us in (10, 40):
        trace.op("aten::mm", at_us, 20, **{"Sequence number": at_us, "Fwd thread id": 0})
    for at_us in (70, 100):
        trace.backward("MmBackward0", at_us, 20, thread=trace.main)

    passes = passes_of(trace, issued=[5, 31, 35, 61, 65, 91, 95, 121], sent=[False, True] * 4)

    assert passes == [("F", -1, 10, 30), ("F", -1, 40, 60), ("B", -1, 70, 90), ("B", -1, 100, 120)]
