"""Ends a loop in the middle of a window: `exit_worker.py OUT raise|exit|sigterm|sigterm-handled|thread`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import torch

from tracekit.capture.probe import probe

out, ending = sys.argv[1:]


def preempted(_number: int, _frame: FrameType | None) -> None:
    print("the user's handler")


if ending == "sigterm-handled":
    signal.signal(signal.SIGTERM, preempted)


@probe(path=out, skip=0, warmup=0, steps=5)
def step(number: int) -> None:
    torch.ones(4).sum()
    if number == 2 and ending != "thread":
        if ending == "raise":
            raise ValueError("the user's own")
        if ending == "exit":
            sys.exit(7)
        os.kill(os.getpid(), signal.SIGTERM)


def loop() -> None:
    for number in range(9 if ending != "thread" else 3):
        step(number)
    print("finished the loop")


if ending == "thread":
    # The loop runs and ends on another thread, as with some launchers.
    trainer = threading.Thread(target=loop)
    trainer.start()
    trainer.join()
else:
    loop()
