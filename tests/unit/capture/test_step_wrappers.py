"""What `@tracekit.probe` decorates behaves as the bare function would: methods, generators, wrong arguments."""

from __future__ import annotations

import abc
import asyncio
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tracekit.capture.probe import probe
from tracekit.capture.probe_object import Probe

pytestmark = pytest.mark.filterwarnings("error::tracekit.capture.hooks.patching.CaptureWarning")


@pytest.fixture
def recorder(runs: Any) -> Probe:
    """Return a probe that records the first two steps."""
    return probe(path=runs.path, skip=0, warmup=0, steps=2)


# ---- methods -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["above", "below"])
def test_each_call_of_a_class_method_is_a_step(
    runs: Any, work: Callable[[], float], recorder: Probe, order: str
) -> None:
    def step(cls: type, factor: int) -> tuple[str, float]:
        """Train."""
        return cls.__name__, factor * work()

    above = order == "above"
    trainer = type("Trainer", (), {"step": recorder(classmethod(step)) if above else classmethod(recorder(step))})
    derived = type("Derived", (trainer,), {})

    assert [trainer.step(2), derived().step(3), derived.step(factor=4)] == [
        ("Trainer", 8.0),
        ("Derived", 12.0),
        ("Derived", 16.0),
    ]
    assert (trainer.step.__self__, trainer.step.__doc__) == (trainer, "Train.")
    assert runs.steps() == [[0, 1]]


@pytest.mark.parametrize("order", ["above", "below"])
def test_each_call_of_a_static_method_is_a_step(
    runs: Any, work: Callable[[], float], recorder: Probe, order: str
) -> None:
    def step(factor: int) -> float:
        return factor * work()

    above = order == "above"
    trainer = type("Trainer", (), {"step": recorder(staticmethod(step)) if above else staticmethod(recorder(step))})

    assert [trainer.step(2), trainer().step(3), trainer().step(4)] == [8.0, 12.0, 16.0]
    assert runs.steps() == [[0, 1]]


@pytest.mark.parametrize("switch", ["0", "1"])
def test_without_options_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, switch: str) -> None:
    monkeypatch.setenv("TRACEKIT", switch)
    for option, value in {"PATH": str(tmp_path), "SKIP": "0", "WARMUP": "0", "STEPS": "1"}.items():
        monkeypatch.setenv(f"TRACEKIT_{option}", value)

    class Trainer(abc.ABC):
        @probe
        @classmethod
        def by_class(cls, factor: int) -> tuple[type, int]:
            return cls, factor

        @probe
        @staticmethod
        def alone(factor: int) -> int:
            return factor

        @probe
        @classmethod
        @abc.abstractmethod
        def missing(cls) -> None: ...

    assert [Trainer.by_class(call) for call in range(2)] == [(Trainer, call) for call in range(2)]
    assert [Trainer.alone(call) for call in range(2)] == [0, 1]
    with pytest.raises(TypeError, match="abstract method"):
        Trainer()  # type: ignore[abstract]


# ---- generators ----------------------------------------------------------------------------------------------------


def test_each_item_of_an_async_generator_is_a_step(runs: Any, work: Callable[[], float], recorder: Probe) -> None:
    received: list[Any] = []

    @recorder
    async def training(items: int) -> AsyncGenerator[int, str]:
        try:
            for item in range(items):
                await asyncio.sleep(0)
                work()
                try:
                    received.append((yield item))
                except LookupError:
                    received.append("error")
        finally:
            received.append("closed")

    async def loop() -> None:
        steps = training(3)
        assert steps.__name__ == "training"
        assert await anext(steps) == 0
        assert await steps.asend("sent") == 1
        assert await steps.athrow(LookupError()) == 2
        with pytest.raises(StopAsyncIteration):
            await anext(steps)
        early = training(3)
        assert await anext(early) == 0
        await early.aclose()

    asyncio.run(loop())
    assert received == ["sent", "error", None, "closed", "closed"]
    assert runs.steps() == [[0, 1]]


def generator(items: int) -> Iterator[int]:
    yield from range(items)


async def async_generator(items: int) -> AsyncIterator[int]:
    for item in range(items):
        yield item


@pytest.mark.parametrize("training", [generator, async_generator])
def test_wrong_arguments_are_refused_at_the_call(recorder: Probe, training: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=f"{training.__name__}.. missing 1 required positional argument") as refused:
        recorder(training)()
    assert [frame.name for frame in traceback.extract_tb(refused.tb)] == [
        "test_wrong_arguments_are_refused_at_the_call"
    ]
