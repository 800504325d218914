"""Training that gets SIGKILL or SIGTERM: `signals_worker.py OUT` writes `OUT/<fault>/facts.json`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.faulty_training import exit_code_of, in_child, run_faults, train
from tracekit.capture.output import packing
from tracekit.capture.profiler_session import ProfilerSession

TIMEOUT_S = 60


def kill(out: Path) -> dict[str, Any]:
    """Send SIGKILL at various points while the second of two windows is written."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def on_call(owner: Any, name: str, number: int, last: Callable[..., object]) -> None:
        original, calls = getattr(owner, name), iter(range(1, 99))

        def replacement(*arguments: Any) -> Any:
            return last(original, *arguments) if next(calls) == number else original(*arguments)

        setattr(owner, name, replacement)

    published = threading.Semaphore(0)

    def count_published(publish: Callable[..., object], *arguments: Any) -> None:
        publish(*arguments)
        published.release()

    def half_an_export(export: Callable[..., None], session: Any, file: Path) -> None:
        for _ in range(2):  # the trace and the manifest of the first window, which another thread writes
            published.acquire(timeout=TIMEOUT_S)
        export(session, file)
        os.truncate(file, file.stat().st_size // 2)
        die()

    def half_a_pack(write: Callable[..., object], file: Path, parts: list[Any]) -> None:
        def dying() -> Iterator[Any]:
            yield from parts
            die()

        write(file, dying())

    points: dict[str, Callable[[], None]] = {
        "export": lambda: on_call(ProfilerSession, "export", 2, half_an_export),
        "verification": lambda: on_call(packing, "read_verified", 2, die),
        "packing": lambda: on_call(packing, "_write", 2, half_a_pack),
        "publication": lambda: on_call(packing, "publish", 3, die),
        "manifest": lambda: on_call(packing, "publish", 4, die),
    }

    def run(point: str) -> None:
        points[point]()
        packing.publish = partial(count_published, packing.publish)
        train(out / point, repeat=2)

    return {point: exit_code_of(in_child(lambda point=point: run(point))) for point in points}  # type: ignore[misc]


def terminate(out: Path) -> dict[str, Any]:
    """Send SIGTERM in a backward pass, in jobs with different handlers, with and without a probe."""

    def to_itself(call: int) -> None:
        if call == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)  # by now Python has run the handler

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit(3)

    seen: list[int] = []
    handlers: dict[str, Any] = {
        "default": signal.SIG_DFL,
        "ignored": signal.SIG_IGN,
        "exits": leave,
        "flag": lambda number, _frame: seen.append(number),
    }

    def run(name: str, path: Path | None) -> None:
        signal.signal(signal.SIGTERM, handlers[name])
        train(path, steps=6, during_backward=to_itself)
        raise SystemExit(10 + len(seen))

    return {
        name: [
            exit_code_of(in_child(lambda name=name, path=path: run(name, path)))  # type: ignore[misc]
            for path in (None, out / name)
        ]
        for name in handlers
    }


if __name__ == "__main__":
    run_faults({"kill": kill, "terminate": terminate}, Path(sys.argv[1]))
