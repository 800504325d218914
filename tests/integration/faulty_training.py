"""A small training for faults to happen in, and the forked processes that most faults end."""

from __future__ import annotations

import atexit
import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch

from tracekit.capture.probe import probe

TIMEOUT_S = 60
ONE_WINDOW: dict[str, Any] = {"skip": 0, "warmup": 0, "steps": 2}


class DuringBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, happen: Callable[[], None]) -> torch.Tensor:
        ctx.happen = happen
        return tensor * 1.0

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.happen()
        return gradients[0], None


def train(
    path: Path | None, calls: int = 6, during_backward: Callable[[int], None] | None = None, **options: Any
) -> list[float]:
    """Train a small model and return the losses. Each window is about 200 kB of JSON."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(20)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(call: int) -> float:
        optimizer.zero_grad()
        outputs = model(torch.ones(2, 4))
        if during_backward is not None:
            outputs = DuringBackward.apply(outputs, lambda: during_backward(call))
        loss = outputs.square().sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    if path is not None:
        recorder = probe(path=path, **ONE_WINDOW | options)
        step = recorder(step)
    losses = [step(call) for call in range(calls)]
    if path is not None:
        recorder.finish()
    return losses


def in_child(task: Callable[[], object]) -> int:
    """Start `task` in a forked child and return its pid."""
    child = os.fork()
    if child:
        return child
    code = 0
    try:
        task()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 99
    atexit._run_exitfuncs()
    os._exit(code)


def exit_code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def run_faults(faults: dict[str, Callable[[Path], dict[str, Any]]], out: Path) -> None:
    """Run each fault with a new folder of its name below `out`, and write its facts to `facts.json` there."""
    train(None)  # so that torch loads what it needs before the forks
    for name, fault in faults.items():
        folder = out / name
        folder.mkdir()
        (folder / "facts.json").write_text(json.dumps(fault(folder)))
