"""What a program raises in a recorded step has the same traceback as without a probe, wherever torch calls it.

torch adds a frame of its own, `inner`, to the forward of a module that has hooks.
"""

from __future__ import annotations

import io
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tracekit
from tests.components import require_module
from tracekit.capture.probe import probe

torch = require_module("torch")
PACKAGE = Path(tracekit.__file__).parent


class Failure(Exception):  # noqa: N818
    """The program's error."""


def fail(*_: Any) -> Any:
    raise Failure


class Unpicklable:
    def __reduce__(self) -> Any:
        fail()


class FailingForward(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        return fail(x)


class FailingBackward(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return fail(gradient)


class FailingDataset(torch.utils.data.Dataset):  # type: ignore[misc, type-arg]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return fail(index)


class FailingSampler(torch.utils.data.Sampler):  # type: ignore[misc, type-arg]
    def __iter__(self) -> Iterator[int]:
        fail()
        yield 0


class FailingStream(io.StringIO):
    def write(self, text: str) -> int:
        return int(fail(text))


class FailingHandler(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        return bool(fail(record))


def failing_hook(state, bucket):  # type: ignore[no-untyped-def]  # torch checks annotations
    return fail(state, bucket)


def in_the_step() -> None:
    fail()


def in_a_save() -> None:
    torch.save(Unpicklable(), io.BytesIO())


def in_a_forward() -> None:
    MODULE(torch.ones(2))


def in_a_forward_of_ddp() -> None:
    DDP_MODULE(torch.ones(2))


def in_a_block_without_gradients() -> None:
    with torch.no_grad():
        MODULE(torch.ones(2))


def in_a_backward_pass() -> None:
    FailingBackward.apply(torch.ones(2, requires_grad=True)).sum().backward()


def in_a_hook_of_a_gradient() -> None:
    x = torch.ones(2, requires_grad=True)
    x.register_hook(fail)
    (x * 2).sum().backward()


def in_a_communication_hook() -> None:
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    module.register_comm_hook(None, failing_hook)
    module(torch.ones(2)).sum().backward()


def in_a_recomputation() -> None:
    calls: list[int] = []

    def forward(x: Any) -> Any:
        calls.append(1)
        return fail() if len(calls) > 1 else x.sin()

    x = torch.ones(2, requires_grad=True)
    torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=False).sum().backward()


def in_a_reentrant_recomputation() -> None:
    calls: list[int] = []

    def forward(x: Any) -> Any:
        calls.append(1)
        return fail() if len(calls) > 1 else x.sin()

    x = torch.ones(2, requires_grad=True)
    torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=True).sum().backward()


def in_an_optimizer() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])
    optimizer.register_step_pre_hook(fail)
    optimizer.step()


def in_a_scaled_step() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(parameter.sum()).backward()
    optimizer = torch.optim.SGD([parameter])
    optimizer.register_step_pre_hook(fail)
    scaler.step(optimizer)


def in_gradient_clipping() -> None:
    torch.nn.utils.clip_grad_value_((fail() for _ in range(1)), 1.0)


def in_a_data_set() -> None:
    next(iter(torch.utils.data.DataLoader(FailingDataset())))


def in_a_sampler() -> None:
    next(iter(torch.utils.data.DataLoader(FailingDataset(), sampler=FailingSampler())))


def in_a_collective() -> None:
    torch.distributed.all_reduce(torch.ones(2), group=object())


def in_a_log() -> None:
    LOG.warning("text")


def in_a_stream() -> None:
    stdout, sys.stdout = sys.stdout, FailingStream()
    try:
        print("text")
    finally:
        sys.stdout = stdout


MODULE = FailingForward()
LOG = logging.getLogger("test_guarantees_tracebacks")
DDP_MODULE: Any = None
PLACES = [value for name, value in globals().copy().items() if name.startswith("in_")]


@pytest.fixture(scope="module", autouse=True)
def program() -> Iterator[None]:
    global DDP_MODULE
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    DDP_MODULE = torch.nn.parallel.DistributedDataParallel(FailingForward())
    probe(skip=10**6)  # from now on communication hooks are wrapped
    LOG.addHandler(FailingHandler())
    yield
    LOG.handlers.clear()
    DDP_MODULE = None
    distributed.destroy_process_group()


def frames(call: Callable[[], Any]) -> tuple[str, list[tuple[str, str]]]:
    """Return the kind of error that a call raises, and the files and functions of its traceback."""
    try:
        call()
    except Exception as error:
        shown = [(frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)[1:]]
        return type(error).__name__, [frame for frame in shown if frame[1] != "inner"]
    return "", []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("window", ["open", "closed"])
def test_an_error_in_a_step_has_the_traceback_that_it_has_without_a_probe(runs: Any, window: str) -> None:
    """GIVEN a job whose steps fail in every place in turn, each of them twice."""
    recorder = probe(path=runs.path, skip=0 if window == "open" else 10**6, warmup=0, steps=10**6)
    expected, actual = {}, {}
    for place in PLACES:
        expected[place.__name__] = [frames(lambda: place())] * 2  # noqa: B023
        step = recorder(lambda: place())  # noqa: B023
        actual[place.__name__] = [frames(step) for _ in range(2)]
    recorder.finish()

    assert actual == expected
    assert [len(steps) for steps in runs.steps()] == ([2 * len(PLACES)] if window == "open" else [])
    for kind, shown in (frame for of_place in actual.values() for frame in of_place):
        assert kind != ""
        assert not [name for name, _ in shown if Path(name).is_relative_to(PACKAGE)]
