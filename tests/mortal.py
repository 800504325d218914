"""Work for workers that are killed; they import it, so it stands in a module of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tracekit.analysis.per_rank import summary_cache as real
from tracekit.analysis.per_rank.summarize import RankFailure
from tracekit.model.summary import RankSummary

KILLER = 1


def note_process(folder: Path, name: int, killers: Sequence[int]) -> int:
    """Leave this process' id in the folder, a file a call; killers go as by the kernel when memory is out."""
    (folder / f"{name}.{len(list(folder.glob(f'{name}.*')))}").write_text(str(os.getpid()))
    if name in killers:
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def begin_and_hang(name: int) -> None:
    """Say so on stdout, and work until somebody ends this process."""
    os.write(1, b"began\n")  # in one piece: unbuffered, `print` would mix the lines of two processes
    signal.pause()


def summarize_and_keep(order: real.Order) -> RankSummary | RankFailure:
    if order.rank == KILLER:
        os.kill(os.getpid(), signal.SIGKILL)
    return real.summarize_and_keep(order)


def say_so_and_wait(fifo: str, *_: object) -> None:
    Path(fifo).write_text("here")
    signal.pause()


def wait_for(fifo: str) -> partial[None]:
    return partial(say_so_and_wait, fifo)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
