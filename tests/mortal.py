"""Functions for workers that are killed or hang. A module, because the workers import it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tracekit.loading import rank_reader as real
from tracekit.model.summary import RankFailure, RankSummary

KILLER = 1


def note_process(folder: Path, name: int, killers: Sequence[int]) -> int:
    """Write this process' id to a new file in the folder. The killers die as if the kernel ran out of memory."""
    (folder / f"{name}.{len(list(folder.glob(f'{name}.*')))}").write_text(str(os.getpid()))
    if name in killers:
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def begin_and_hang(name: int) -> None:
    """Print that the work has begun, and hang until this process is ended."""
    os.write(1, b"began\n")  # in one piece: unbuffered, `print` would mix the lines of two processes
    signal.pause()


def summarize_and_store(task: real.SummaryTask) -> RankSummary | RankFailure:
    if task.rank == KILLER:
        os.kill(os.getpid(), signal.SIGKILL)
    return real.summarize_and_store(task)


def say_so_and_wait(fifo: str, *_: object) -> None:
    Path(fifo).write_text("here")
    signal.pause()


def wait_for(fifo: str) -> partial[None]:
    return partial(say_so_and_wait, fifo)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(error: Exception | None) -> None:
    if error is not None:
        raise error


class UnsendableError(Exception):
    """An exception that can be packed and not unpacked."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


def fail_unsendably() -> None:
    raise UnsendableError("two", "words")
