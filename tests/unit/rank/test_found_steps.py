"""Steps of recordings without marks: from optimizers, labels, the period of collectives, or none. Times are us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.loading.recording import Recording, recording_of
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.rank.steps import RECORDED_STEPS, StepSearch
from tracekit.read.decode.portable import decode


def recorded(folder: Path, trace: TraceBuilder, search: StepSearch = RECORDED_STEPS) -> Recording:
    return recording_of(decode(trace.write(folder / "rank0.json")), DEFAULT_RULES, search)


def found(folder: Path, trace: TraceBuilder, anchor: str | None = None) -> tuple[str, list[int]]:
    """Return how the steps were found, and their lengths as the host saw them."""
    host = recorded(folder, trace, StepSearch(anchor=anchor)).lanes.windows.host
    return host.source, ((host.end_ns - host.start_ns) // 1000).tolist()


def iteration(trace: TraceBuilder, at: int, *, layers: int = 4, micro_batches: int = 1) -> int:
    """Add passes over some layers, 10 us a layer and pass, and return their end."""
    for _ in range(micro_batches):
        for layer in range(layers):
            trace.op("aten::mm", at + 10 * layer, 8)
            trace.backward("MmBackward0", at + 10 * (layers + layer), 8)
        at += 20 * layers
    return at


def optimizer(trace: TraceBuilder, at: int, name: str = "Adam") -> int:
    trace.label(f"Optimizer.step#{name}.step", at, 10).op("aten::add_", at + 2, 5)
    return at + 10


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_step_ends_with_the_optimizer_even_if_gradients_are_accumulated(tmp_path: Path, micro_batches: int) -> None:
    trace, at = TraceBuilder(), 0
    for _ in range(4):
        at = optimizer(trace, iteration(trace, at, micro_batches=micro_batches)) + 5
    assert found(tmp_path, trace) == ("optimizer", [80 * micro_batches + 15] * 3)


def test_optimizers_behind_one_backward_pass_are_one_step(tmp_path: Path) -> None:
    trace, at = TraceBuilder(), 0
    for _ in range(4):
        at = optimizer(trace, optimizer(trace, iteration(trace, at), "Muon"), "AdamW")
    assert found(tmp_path, trace) == ("optimizer", [100] * 3)


@pytest.mark.parametrize("names", [("Adam", "SGD"), ("Adam", "Adam")])
def test_optimizers_that_take_turns_are_one_step(tmp_path: Path, names: tuple[str, str]) -> None:
    trace, at = TraceBuilder(), 0
    for _ in range(4):  # the discriminator has fewer layers than the generator
        at = optimizer(trace, iteration(trace, at, layers=2), names[0])
        at = optimizer(trace, iteration(trace, at, layers=6), names[1])
    source, lengths = found(tmp_path, trace)
    assert (source, set(lengths)) == ("optimizer", {180})


def test_a_closure_runs_inside_of_the_optimizer(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for k in range(4):
        iteration(trace.label("Optimizer.step#Adam.step", 100 * k, 95), 100 * k)
    assert found(tmp_path, trace) == ("optimizer", [100] * 3)


ENGINES = ("step[DECODE bs=8]", "execute_context_0(0)_generation_8(8)", "[pl][profile]run_training_batch", "train_step")


@pytest.mark.parametrize("label", ENGINES)
def test_a_label_begins_a_step(tmp_path: Path, label: str) -> None:
    trace = TraceBuilder()
    for k in range(4):
        trace.label(label, 100 * k, 60).op("aten::mm", 100 * k + 10, 30)
    assert found(tmp_path, trace) == ("labels", [100] * 3)


def test_an_anchor_comes_before_marks(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for k in range(4):
        trace.step(k, 100 * k, 100).op("my::begin", 100 * k, 30).op("my::begin", 100 * k + 50, 30)
    assert found(tmp_path, trace)[0] == "spans"
    assert found(tmp_path, trace, "^my::begin$") == ("anchor", [50] * 7)


def of_layers(trace: TraceBuilder, *, steps: int, layers: int, trained: bool) -> TraceBuilder:
    """Steps on a GPU whose layers each end with an all-reduce, with a head behind the last layer."""
    at = 0
    for step in range(steps):
        for begin in range(2 if trained else 1):
            for _ in range(layers):
                if trained:
                    add = trace.backward if begin else trace.op
                    add("MmBackward0" if begin else "aten::mm", at, 5)
                trace.kernel("gemm", at, 8, launched_at=at).kernel("gelu", at + 8, 4, launched_at=at + 1)
                trace.nccl("all_reduce", at + 12, 5, launched_at=at + 3)
                at += 20
        if not trained:
            trace.memcpy(at, 2, launched_at=at)
        for kernel in range(6 + (step == 2)):  # one more in the third step
            trace.kernel("head", at + 3 * kernel, 2, launched_at=at + kernel)
        at += 40
    return trace


@pytest.mark.parametrize("trained", [True, False])
def test_the_period_of_collectives_is_a_step_and_no_layer(tmp_path: Path, trained: bool) -> None:
    trace = of_layers(TraceBuilder(), steps=5, layers=6, trained=trained)
    assert found(tmp_path, trace) == ("collectives", [6 * 20 * (1 + trained) + 40] * 3)


def test_the_layers_of_one_step_are_no_steps(tmp_path: Path) -> None:
    trace = of_layers(TraceBuilder(), steps=1, layers=12, trained=False)
    assert found(tmp_path, trace)[0] == "recording"


def test_what_lies_around_the_device_events_of_no_step_is_no_idle_time(tmp_path: Path) -> None:
    trace = TraceBuilder().op("aten::mm", 0, 10).kernel("gemm", 1000, 50, launched_at=5)
    trace.kernel("gemm", 1060, 40, launched_at=6).op("aten::mm", 5000, 10)
    lanes = recorded(tmp_path, trace).lanes
    assert (lanes.windows.source, lanes.idle.len_ns) == ("recording", 10_000)
    assert (lanes.windows.end_ns - lanes.windows.start_ns).tolist() == [100_000]


def test_the_thread_of_the_steps_is_not_that_of_autograd(tmp_path: Path) -> None:
    trace = TraceBuilder().op("aten::mm", 0, 10)
    for k in range(5):
        trace.backward("MmBackward0", 20 + 10 * k, 8).op("aten::mm", 22 + 10 * k, 5, thread=trace.autograd)
    events = recorded(tmp_path, trace)
    assert events.trace.events.tracks[events.lanes.windows.thread].tid == trace.main


def test_a_message_on_the_thread_of_the_steps_is_no_compute(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).event("gloo:recv", "cpu_op", 20, 50)
    lanes = recorded(tmp_path, trace).lanes
    assert (lanes.compute.len_ns, lanes.exposed_communication.len_ns) == (10_000, 50_000)
