"""When a loop stops calling, its recording ends by itself, and only where that is safe."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from tracekit.capture.ending import idle_timeout
from tracekit.capture.ending.idle_timeout import IdleTimeout, idle_timeout_s
from tracekit.capture.probe import probe
from tracekit.capture.warn import CaptureWarning
from tracekit.capture.windows import Windows

HANGS_S = 60  # a test that waits longer has failed


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher notices a time-out at once."""
    monkeypatch.setattr(idle_timeout, "POLL_S", 0.001)


def run_until(done: Callable[[], bool]) -> None:
    """Run other code on the main thread until `done()`."""
    deadline = time.monotonic() + HANGS_S
    while not done():
        assert time.monotonic() < deadline
        sum(range(100))


def interrupt(limit: IdleTimeout) -> None:
    """Call the signal handler as if the signal had come here."""
    limit._on_signal(0, sys._getframe())


def signals_in_use() -> list[int]:
    return [number for number in signal.valid_signals() if signal.getsignal(number) != signal.SIG_DFL]


def is_recording(torch: Any) -> bool:
    return bool(torch.autograd._profiler_enabled())


@pytest.mark.parametrize(
    ("longest_s", "all_steps_returned", "expected_s"),
    [(0.0, True, 1.0), (4.0, True, 4.0), (0.0, False, 10.0), (1.9, False, 10.0), (4.0, False, 20.0)],
)
def test_the_timeout_grows_with_the_longest_step(longest_s: float, all_steps_returned: bool, expected_s: float) -> None:
    assert idle_timeout_s(int(longest_s * 1e9), all_steps_returned=all_steps_returned) == pytest.approx(expected_s)


def test_the_timeout_calls_back_on_the_main_thread_while_that_runs_other_code(torch: Any, quick: None) -> None:
    threads: list[int] = []
    before = signals_in_use()
    limit = IdleTimeout(lambda: threads.append(threading.get_ident()))

    limit.arm(0)
    run_until(lambda: len(threads) > 1)  # it calls back again until it is ended
    limit.end()

    assert signals_in_use() == before
    assert set(threads) == {threading.get_ident()}
    assert limit._watcher is not None
    limit._watcher.join(HANGS_S)
    assert not limit._watcher.is_alive()


def test_a_signal_with_a_handler_of_the_program_is_not_used(torch: Any) -> None:
    handler = signal.signal(signal.SIGRTMAX, lambda *_: None)
    before = handlers()
    limit = IdleTimeout(lambda: None)
    limit.arm(HANGS_S)

    (taken,) = [number for number, current in handlers().items() if current != before[number]]
    assert before[taken] == signal.SIG_DFL
    assert signal.SIGRTMIN < taken < signal.SIGRTMAX
    limit.end()
    assert handlers() == before
    signal.signal(signal.SIGRTMAX, handler)


def handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in range(1, signal.SIGRTMAX + 1) if number not in {32, 33}}


@pytest.mark.parametrize("where", [threading, idle_timeout])
def test_nothing_happens_in_code_that_takes_locks_or_in_the_capture(torch: Any, where: ModuleType) -> None:
    called: list[bool] = []
    limit = IdleTimeout(lambda: called.append(True))
    limit.arm(0)

    exec(compile("on_signal(0, sys._getframe())", where.__file__, "exec"), {"on_signal": limit._on_signal, "sys": sys})

    assert called == []
    limit.end()


@pytest.mark.parametrize("stopped", [IdleTimeout.disarm, IdleTimeout.end])
def test_a_disarmed_timeout_does_not_call_back(torch: Any, stopped: Callable[[IdleTimeout], None]) -> None:
    called: list[bool] = []
    limit = IdleTimeout(lambda: called.append(True))
    limit.arm(0)
    assert limit.has_passed

    stopped(limit)
    interrupt(limit)

    assert called == []
    limit.end()


def test_the_timeout_does_not_call_back_in_a_forked_child(torch: Any) -> None:
    called: list[bool] = []
    limit = IdleTimeout(lambda: called.append(True))
    limit.arm(0)

    child = os.fork()
    if child == 0:
        interrupt(limit)
        os._exit(len(called))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    interrupt(limit)
    assert called == [True]
    limit.end()


def test_an_interrupt_during_the_callback_reaches_the_program(torch: Any, quick: None) -> None:
    interrupt = KeyboardInterrupt("the user's")

    def interrupted() -> None:
        limit.end()
        raise interrupt

    limit = IdleTimeout(interrupted)

    with pytest.raises(KeyboardInterrupt) as caught:  # noqa: PT012
        limit.arm(0)
        run_until(lambda: False)

    assert caught.value is interrupt


def test_nothing_happens_within_a_backward_pass(torch: Any, quick: None) -> None:
    passes: list[int] = []
    in_backward: list[bool] = []
    limit = IdleTimeout(lambda: in_backward.append(torch._C._current_graph_task_id() != -1))

    class Slow(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            limit.arm(0)
            interrupt(limit)
            passes.append(1)
            return gradient

    Slow.apply(torch.ones(2, requires_grad=True)).sum().backward()
    run_until(lambda: bool(in_backward))
    limit.end()

    assert passes == [1]
    assert not any(in_backward)


def test_a_loop_that_stops_after_its_last_planned_step_has_a_whole_window(
    torch: Any, runs: Any, work: Callable[[], float]
) -> None:
    recorder = probe(path=runs.path, skip=0, warmup=0, steps=2)
    step = recorder(work)
    step()
    step()
    assert is_recording(torch)

    recorder._end_idle()

    assert not is_recording(torch)
    (trace,) = runs.traces()
    assert runs.steps() == [[0, 1]]
    assert all(step["end_ns"] is not None for step in trace["tracekit"]["steps"])
    assert trace["tracekit"]["window"]["partial"] is False
    assert trace["tracekit"]["notes"] == []
    assert [step() for _ in range(3)] == [4.0] * 3
    recorder.finish()
    assert runs.steps() == [[0, 1]]


def test_a_loop_that_stops_between_planned_steps_has_a_partial_window_with_a_note(
    torch: Any, runs: Any, work: Callable[[], float]
) -> None:
    recorder = probe(path=runs.path, skip=0, warmup=0, steps=3, repeat=2)
    step = recorder(work)
    step()

    recorder._end_idle()

    (trace,) = runs.traces()
    assert runs.steps() == [[0]]
    assert trace["tracekit"]["window"]["partial"] is True
    (note,) = trace["tracekit"]["notes"]
    assert note["text"] == "no step followed for 10 s, so the recording ends there"
    for _ in range(6):  # the next window comes as planned
        step()
    assert runs.steps() == [[0], [3, 4, 5]]


def test_a_provisional_recording_ends_and_waits_for_the_end_of_the_job(
    torch: Any, runs: Any, work: Callable[[], float]
) -> None:
    recorder = probe(path=runs.path)
    step = recorder(work)
    step()

    recorder._end_idle()

    assert not is_recording(torch)
    assert runs.files() == []
    with pytest.warns(CaptureWarning, match="ended after 1 steps"):
        recorder.finish()
    assert runs.steps() == [[0]]


def test_a_loop_that_continues_after_a_pause_has_its_window(torch: Any, runs: Any, work: Callable[[], float]) -> None:
    recorder = probe(path=runs.path)
    step = recorder(work)
    step()
    recorder._end_idle()

    for _ in range(7):
        step()

    assert runs.steps() == [[4, 5, 6]]
    assert runs.traces()[0]["tracekit"]["window"]["partial"] is False


def test_a_step_that_takes_long_is_not_interrupted(torch: Any, runs: Any) -> None:
    recorder = probe(path=runs.path, skip=0, warmup=0, steps=1)

    @recorder
    def step() -> bool:
        recorder._end_idle()
        return is_recording(torch)

    assert step()
    recorder.finish()
    assert runs.steps() == [[0]]


def test_a_slow_loader_does_not_end_the_recording(torch: Any, runs: Any, work: Callable[[], float]) -> None:
    recorder = probe(path=runs.path, skip=0, warmup=0, steps=2)
    step = recorder(work)

    def loader() -> Iterator[int]:
        for item in range(3):
            recorder._end_idle()
            yield item

    for _ in recorder.iterate(loader()):
        step()
    recorder.finish()

    assert runs.steps() == [[0, 1]]
    assert runs.traces()[0]["tracekit"]["notes"] == []


def test_nothing_happens_while_another_probe_works(
    torch: Any, runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = probe(path=runs.path, skip=0, warmup=0), probe(path=runs.path)
    first(work)()
    during: list[bool] = []

    def end_idle(self: Windows, call: int) -> int:
        first._end_idle()
        during.append(is_recording(torch))
        return call + 1

    with monkeypatch.context() as interrupting:
        interrupting.setattr(Windows, "on_call", end_idle)
        second(work)()

    assert during == [True]
    first._end_idle()
    assert not is_recording(torch)


def test_a_recording_ends_by_itself_if_the_loop_stops(
    torch: Any, runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(idle_timeout, "AFTER_LAST_STEP_S", 0.0)
    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(work)
    step()

    run_until(lambda: bool(runs.files()) and not is_recording(torch))

    assert runs.steps() == [[0]]
