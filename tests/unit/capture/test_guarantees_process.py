"""Interrupts within the probe reach the program, and a forked child does not record."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tracekit.capture import profiler_session
from tracekit.capture.hooks import patching
from tracekit.capture.probe import probe


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt("the user's"), SystemExit(7)])
@pytest.mark.parametrize(
    "at", ["profiler_session:ProfilerSession.start", "profiler_session:ProfilerSession.stop", "recording:export_trace"]
)
def test_an_interrupt_within_the_probe_reaches_the_program_and_leaves_nothing(
    torch: Any,
    runs: Any,
    work: Callable[[], float],
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    interrupt: BaseException,
) -> None:
    destroy = torch.distributed.destroy_process_group
    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(work)
    with monkeypatch.context() as broken:
        raised = iter([interrupt])
        original = getattr(*_place(at))

        def once(*args: Any, **kwargs: Any) -> Any:
            if (error := next(raised, None)) is not None:
                raise error
            return original(*args, **kwargs)

        broken.setattr(*_place(at), once)
        with pytest.raises(type(interrupt)) as caught:  # noqa: PT012
            step()
            step()

    assert caught.value is interrupt
    assert [step() for _ in range(3)] == [4.0] * 3
    assert _patched() == []
    assert torch.distributed.destroy_process_group is destroy
    assert not profiler_session._users
    assert not torch.autograd._profiler_enabled()
    assert runs.files() == []


def test_a_child_forked_within_a_window_records_and_writes_nothing(
    torch: Any, runs: Any, work: Callable[[], float]
) -> None:
    recorder = probe(path=runs.path, skip=0, warmup=0, steps=2)
    step = recorder(work)
    step()
    step()

    child = os.fork()
    if child == 0:
        unpatched = not _patched()
        before = _resident_bytes()
        ones = torch.ones(4)
        for _ in range(20_000):  # 50 MB of events if they were kept
            ones.add_(0)
        grown = _resident_bytes() - before
        results = [step() for _ in range(5)]
        recorder.finish()
        os._exit(0 if unpatched and results == [4.0] * 5 and grown < 20e6 else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert runs.files() == []
    step()
    assert runs.steps() == [[0, 1]]
    assert runs.traces()[0]["tracekit"]["pid"] == os.getpid()


def test_calls_on_another_thread_are_no_steps(runs: Any, work: Callable[[], float]) -> None:
    step = probe(path=runs.path, skip=0, warmup=0, steps=2)(work)
    step()
    results: list[float] = []
    other = threading.Thread(target=lambda: results.extend(step() for _ in range(5)))
    other.start()
    other.join()
    step()
    step()

    assert results == [4.0] * 5
    assert runs.steps() == [[0, 1]]


def _place(where: str) -> tuple[Any, str]:
    """The object that holds the last name of `<module below tracekit.capture>:<qualified name>`, and that name."""
    module, _, qualified = where.partition(":")
    *inner, name = qualified.split(".")
    owner: Any = importlib.import_module(f"tracekit.capture.{module}")
    for part in inner:
        owner = getattr(owner, part)
    return owner, name


def _patched() -> list[str]:
    return [patch._name for patch in patching._applied if patch.is_active and not patch.lasting]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
