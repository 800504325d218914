"""The overhead that a recording reports: it is measured in the process, and the training does not notice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.capture import overhead
from tracekit.capture.output import packing as event_counts
from tracekit.capture.output.packing import count_events
from tracekit.capture.overhead import OverheadMeter
from tracekit.capture.probe import probe
from tracekit.model.spans import CALIBRATION_SPAN

pytestmark = pytest.mark.filterwarnings("error::tracekit.capture.hooks.patching.CaptureWarning")

PROFILER = {"record_shapes": True, "with_stack": False}


@pytest.fixture(autouse=True)
def no_costs(monkeypatch: pytest.MonkeyPatch) -> dict[frozenset[str], Any]:
    costs: dict[frozenset[str], Any] = {}
    monkeypatch.setattr(overhead, "_costs", costs)
    return costs


@pytest.fixture
def training(torch: Any) -> Callable[[], float]:
    """A step with dropout, so that its losses depend on the random number generator."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().sum()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def spans(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("name") == name]


def exported(folder: Path, *events: tuple[str, str]) -> Path:
    """Write events of these categories and names as torch does; return the file."""
    file = folder / "export.json"
    file.write_text("\n".join(f'{{"ph": "X", "cat": "{category}", "name": "{name}"}},' for category, name in events))
    return file


def test_the_first_window_measures_the_cost_of_an_operator_after_its_last_step(
    runs: Any, training: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, passes_ns = overhead._timing, [3_000_000, 1_000_000]

    def planted(trained: bool) -> overhead._Timing:
        passes = measure(trained).passes
        return overhead._Timing(pass_ns=passes_ns.pop(0), passes=passes, call_ns=0)

    monkeypatch.setattr(overhead, "_timing", planted)
    monkeypatch.setattr(overhead, "_MAX_NS", 10**12)  # else a slow machine would skip the measurement
    step = probe(path=runs.path, skip=0, warmup=0, steps=2, repeat=2, every=3)(training)
    for _ in range(6):
        step()
        runs.wait()  # the first is counted when it is written

    first, second = runs.traces()
    (measurement,) = spans(first, CALIBRATION_SPAN)
    ends_us = [(s["end_ns"] - first["baseTimeNanoseconds"]) / 1000 for s in first["tracekit"]["steps"]]
    assert measurement["ts"] >= max(ends_us)
    assert spans(second, CALIBRATION_SPAN) == []
    costs = [trace["tracekit"]["overhead"] for trace in (first, second)]
    calibration = [e for e in first["traceEvents"] if e.get("cat") == "cpu_op" and e["ts"] > measurement["ts"]]
    passes = len([event for event in calibration if event["name"] == "aten::gelu"])
    assert passes > 1
    assert costs[0]["operation_ns"] == costs[1]["operation_ns"] == round(2_000_000 * passes / len(calibration))
    assert all(cost["per_step_ns"] > cost["operation_ns"] for cost in costs)
    assert all(cost["options"] == ["record_shapes"] for cost in costs)
    assert len(runs.files()) == 4  # two traces, two manifests


def test_the_cost_counts_the_events_of_the_steps_without_those_of_the_measurement(
    no_costs: dict[frozenset[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = overhead._Cost(operation_ns=100, python_call_ns=10, span_ns=1000)
    no_costs[frozenset({"record_shapes"})] = cost
    steps = [("user_annotation", "ProfilerStep#0"), ("cpu_op", "aten::add"), ("cpu_op", "tracekit.backward")]
    calibration = [("cpu_op", CALIBRATION_SPAN), ("cpu_op", "aten::gelu"), ("cpu_op", "aten::mul")]
    others = [("kernel", "gemm"), ("python_function", "train.py(1): step"), ("python_function", "train.py(9): loss")]
    meter = OverheadMeter(PROFILER)
    meter.count(count_events(exported(tmp_path, *steps, *calibration, *others).read_bytes()))
    # The name of the measurement's span follows its category, so its category counts as one more operator.
    assert meter.recording_ns() == (3 + 1) * 100 + 2 * 10 + 1 * 1000

    for size in (1, 7, 64):  # a pattern that spans two pieces counts once
        monkeypatch.setattr(event_counts, "_PIECE_BYTES", size)
        again = OverheadMeter(PROFILER)
        again.count(count_events(exported(tmp_path, *steps, *calibration, *others).read_bytes()))
        assert again.recording_ns() == meter.recording_ns()


def test_the_pass_counts_that_was_disturbed_least(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two quartiles of disturbed passes differ by more than the events of a pass cost."""
    costs_ns, now_ns = itertools.chain([900, 800, 300], itertools.repeat(700)), [0]

    def disturbed_pass() -> None:
        now_ns[0] += next(costs_ns)

    monkeypatch.setattr(overhead, "_layers", lambda _: disturbed_pass)
    monkeypatch.setattr(overhead, "time", SimpleNamespace(thread_time_ns=lambda: now_ns[0]))
    assert overhead._timing(False).pass_ns == 300


def test_a_cost_measured_with_other_options_is_not_used(no_costs: dict[frozenset[str], Any], tmp_path: Path) -> None:
    no_costs[frozenset()] = overhead._Cost(operation_ns=100, python_call_ns=0, span_ns=0)
    meter = OverheadMeter(PROFILER)
    meter.count(count_events(exported(tmp_path, ("cpu_op", "aten::add")).read_bytes()))
    assert meter.recording_ns() is None
    assert meter.operation_ns is None


@pytest.mark.parametrize("part", ["_timing", "_Cost"])
def test_without_a_measurement_the_cost_is_unknown(
    runs: Any, training: Callable[[], float], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(overhead, part, fails)
    step = probe(path=runs.path, skip=0, warmup=0, steps=2)(training)
    for _ in range(3):
        step()

    (trace,) = runs.traces()
    assert trace["tracekit"]["overhead"]["per_step_ns"] is None
    assert trace["tracekit"]["overhead"]["operation_ns"] is None
    assert trace["tracekit"]["notes"] == []


def test_the_measurement_changes_no_random_numbers(torch: Any, runs: Any, training: Callable[[], float]) -> None:
    torch.manual_seed(3)
    recorded = probe(path=runs.path, skip=0, warmup=0, steps=2)(training)
    random_before = []
    for _ in range(3):
        random_before.append(torch.get_rng_state())
        recorded()
    assert spans(runs.traces()[0], CALIBRATION_SPAN)

    torch.manual_seed(3)
    for state in random_before:
        assert torch.equal(torch.get_rng_state(), state)
        training()


@pytest.mark.parametrize(("trains", "passes"), [(True, True), (False, False)])
def test_the_measurement_runs_backward_passes_only_if_the_job_does(
    torch: Any, runs: Any, training: Callable[[], float], monkeypatch: pytest.MonkeyPatch, trains: bool, passes: bool
) -> None:
    """The first backward pass of a process starts threads; after that a forked child cannot train."""
    seen = []
    gradients = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args: seen.append(args) or gradients(*args))
    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(training if trains else lambda: torch.ones(4).sum())
    for _ in range(2):
        step()

    assert bool(seen) is passes
    assert spans(runs.traces()[0], CALIBRATION_SPAN)


def test_a_dispatch_mode_of_the_program_sees_no_operator_of_the_measurement(torch: Any, runs: Any) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watching(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not str(function).startswith("profiler."):  # the span of the step
                seen.append(str(function))
            return function(*args, **(kwargs or {}))

    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(lambda: torch.ones(4))
    with Watching():
        step()
        step()

    assert seen == ["aten.ones.default"] * 2
    (trace,) = runs.traces()
    assert trace["tracekit"]["overhead"]["per_step_ns"] is None


def test_nothing_is_measured_while_backward_passes_are_compiled(
    runs: Any, training: Callable[[], float], torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo import compiled_autograd

    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(training)
    step()
    monkeypatch.setattr(compiled_autograd, "compiled_autograd_enabled", True)
    step()  # the window closes here
    (trace,) = runs.traces()
    assert trace["tracekit"]["overhead"]["per_step_ns"] is None
    assert not [e for e in trace["traceEvents"] if e.get("name") == "aten::gelu"]


def test_the_measurement_runs_outside_of_the_program_s_autocast(
    runs: Any, training: Callable[[], float], torch: Any
) -> None:
    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(training)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        step()
        step()
    (trace,) = runs.traces()
    (measurement,) = spans(trace, CALIBRATION_SPAN)
    operators = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op" and "Input type" in e["args"]]
    lowered_us = [e["ts"] for e in operators if any("BFloat16" in kind for kind in e["args"]["Input type"])]
    assert lowered_us
    assert max(lowered_us) < measurement["ts"] < max(e["ts"] for e in operators)


def test_nothing_is_measured_inside_a_step_that_did_not_end(runs: Any, training: Callable[[], float]) -> None:
    def fails() -> None:
        training()
        raise ValueError("the user's")

    recorder = probe(path=runs.path, skip=0, warmup=0, steps=1)
    with pytest.raises(ValueError, match="the user's"):
        recorder(fails)()
    recorder.finish()

    (trace,) = runs.traces()
    assert spans(trace, CALIBRATION_SPAN) == []
    assert trace["tracekit"]["overhead"]["per_step_ns"] is None
