"""An exception of the loop is the same as without a probe: the same object, traceback and context."""

from __future__ import annotations

import asyncio
import dataclasses
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tracekit
from tests.components import require_module
from tracekit.capture.probe import probe
from tracekit.capture.probe_object import Probe

FAILING_CALL = 1
PACKAGE = Path(tracekit.__file__).parent

require_module("torch")


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818
    """An exception that allows nobody to set its attributes."""

    number: int


class Vanished(Exception):  # noqa: N818
    """An exception whose arguments do not allow a copy."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} of {second}")


RAISED: list[Callable[[], BaseException]] = [
    lambda: ValueError("the user's own"),
    lambda: KeyboardInterrupt("the user's"),
    lambda: SystemExit(7),
    lambda: Vanished(1, 2),
    lambda: Frozen(3),
]


def deep(error: BaseException) -> None:
    try:
        {}["context"]
    except KeyError:
        raise error  # noqa: B904 - the context is what is looked at


def in_function(recorder: Probe | None, error: BaseException) -> None:
    def step(call: int) -> None:
        if call == FAILING_CALL:
            deep(error)

    decorated = recorder(step) if recorder else step
    for call in range(4):
        decorated(call)


def in_generator(recorder: Probe | None, error: BaseException) -> None:
    def steps() -> Iterator[int]:
        for call in range(4):
            if call == FAILING_CALL:
                deep(error)
            yield call

    decorated = recorder(steps) if recorder else steps
    for _ in decorated():
        pass


def thrown_into_a_generator(recorder: Probe | None, error: BaseException) -> None:
    def steps() -> Any:
        yield from range(4)

    decorated = recorder(steps) if recorder else steps
    items = decorated()
    next(items)
    next(items)
    items.throw(error)


def in_coroutine(recorder: Probe | None, error: BaseException) -> None:
    async def step(call: int) -> None:
        await asyncio.sleep(0)
        if call == FAILING_CALL:
            deep(error)

    decorated = recorder(step) if recorder else step

    def run(call: int) -> None:  # an event loop treats KeyboardInterrupt specially
        coroutine = decorated(call)
        while True:
            try:
                coroutine.send(None)
            except StopIteration:
                return

    for call in range(4):
        run(call)


def in_async_generator(recorder: Probe | None, error: BaseException) -> None:
    async def steps() -> AsyncIterator[int]:
        for call in range(4):
            await asyncio.sleep(0)
            if call == FAILING_CALL:
                deep(error)
            yield call

    decorated = recorder(steps) if recorder else steps
    items = decorated()

    def run() -> None:  # an event loop treats KeyboardInterrupt specially
        following = anext(items)
        while True:
            try:
                following.__await__().send(None)
            except StopIteration:
                return

    for _ in range(4):
        run()


def in_block(recorder: Probe | None, error: BaseException) -> None:
    if recorder is None:
        for call in range(4):
            if call == FAILING_CALL:
                deep(error)
        return
    with recorder:
        for call in range(4):
            if call == FAILING_CALL:
                deep(error)
            recorder.step()


def in_loader(recorder: Probe | None, error: BaseException) -> None:
    def batches() -> Iterator[int]:
        for call in range(4):
            if call == FAILING_CALL:
                deep(error)
            yield call

    def step(_batch: int) -> None:
        pass

    decorated = recorder(step) if recorder else step
    for batch in recorder.iterate(batches()) if recorder else batches():
        decorated(batch)


LOOPS = [
    in_function, in_generator, thrown_into_a_generator, in_coroutine, in_async_generator, in_block, in_loader,
]  # fmt: skip


def ending(loop: Callable[[Probe | None, BaseException], None], recorder: Probe | None, error: BaseException) -> Any:
    """Return the exception of the loop, the frames of its traceback, and its context."""
    try:
        loop(recorder, error)
    except BaseException as caught:
        frames = traceback.extract_tb(caught.__traceback__)
        assert not [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
        # Lines of the loop differ: they call the step or the probe around it.
        return caught, [(frame.name, frame.line) for frame in frames if frame.name != loop.__name__], caught.__context__
    return None


@pytest.mark.filterwarnings("ignore::tracekit.capture.hooks.patching.CaptureWarning")
@pytest.mark.parametrize("make_error", RAISED, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("window", ["open", "closed"])
def test_an_exception_of_the_loop_is_the_same_as_without_a_probe(
    runs: Any, loop: Callable[[Probe | None, BaseException], None], make_error: Callable[[], BaseException], window: str
) -> None:
    recorder = probe(path=runs.path, skip=0 if window == "open" else 50, warmup=0, steps=5)
    error, cause = make_error(), RuntimeError("the cause")
    BaseException.__setattr__(error, "__cause__", cause)
    BaseException.__setattr__(error, "__notes__", ["a note"])

    _, frames, context = ending(loop, None, make_error())
    caught, recorded_frames, recorded_context = ending(loop, recorder, error)
    recorder.finish()

    assert caught is error
    assert (error.__cause__, error.__notes__) == (cause, ["a note"])
    assert recorded_frames == frames
    assert (type(recorded_context), str(recorded_context)) == (type(context), str(context))
    assert [steps[0] for steps in runs.steps()] == ([0] if window == "open" else [])


def test_a_step_inside_a_step_of_another_probe_leaves_no_frames(tmp_path: Path) -> None:
    def step() -> None:
        deep(ValueError("the user's own"))

    nested = probe(path=tmp_path / "outer", skip=0, steps=2)(probe(path=tmp_path / "inner", skip=9, steps=2)(step))

    with pytest.raises(ValueError, match="own") as raised:
        nested()

    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)] == [
        "test_a_step_inside_a_step_of_another_probe_leaves_no_frames",
        *("step", "deep"),
    ]
