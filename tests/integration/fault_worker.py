"""Training with injected faults: `fault_worker.py FAULT OUT [MOUNTS]` writes `OUT/facts.json`.

Most faults end their process, so they happen in forked children of a process that has imported torch.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist

from tracekit.capture.job import process
from tracekit.capture.job.clock import HostClock
from tracekit.capture.output import writer
from tracekit.capture.probe import probe
from tracekit.capture.profiler_session import ProfilerSession

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


# ---- disks -------------------------------------------------------------------------------------------------------


def disk(out: Path, mounts: Path) -> dict[str, Any]:
    """Write to full, small and read-only disks; `mounts` contains those that could be mounted."""
    (out / "file").write_text("not a folder")
    pack = writer._with_metadata

    def fill_up(*arguments: Any) -> Any:
        with (mounts / "roomy/ballast").open("wb", buffering=0) as ballast:
            try:
                while ballast.write(b"x" * 4096):
                    pass
            except OSError:
                print("the disk is full", file=sys.stderr)
        return pack(*arguments)

    def limited(soft_bytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft_bytes, resource.RLIM_INFINITY))

    def nothing() -> None:
        pass

    everywhere: dict[str, Any] = {"min_free_bytes": 0, "repeat": 3}
    scenarios: dict[str, tuple[Path, dict[str, Any], Callable[[], object], Callable[[], object]]] = {
        "missing folder": (out / "not/yet/there", everywhere, nothing, nothing),
        "below a file": (out / "file/runs", everywhere, nothing, nothing),
        "largest file": (out / "limited", everywhere, lambda: limited(50_000), lambda: limited(resource.RLIM_INFINITY)),
        "bytes in all": (out / "bytes", everywhere | {"max_bytes": 1000}, nothing, nothing),
    }
    if mounts.exists():
        scenarios |= {
            "full in the export": (mounts / "small/runs", everywhere, nothing, nothing),
            "full in the packing": (
                mounts / "roomy/runs",
                everywhere,
                lambda: setattr(writer, "_with_metadata", fill_up),
                lambda: setattr(writer, "_with_metadata", pack),
            ),
            "too little free": (mounts / "roomy/runs", {"repeat": 3}, nothing, nothing),
            "read-only": (mounts / "readonly/runs", everywhere, nothing, nothing),
        }
    facts: dict[str, Any] = {"bare": {"losses": train(None)}}
    for name, (path, options, before, after) in scenarios.items():
        print(f"== {name}", file=sys.stderr, flush=True)
        before()
        losses = train(path, **options)
        after()
        files = [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()]
        facts[name] = {"losses": losses, "files": files, "bytes": [(path / file).stat().st_size for file in files]}
    return facts


# ---- signals -----------------------------------------------------------------------------------------------------


def kill(out: Path) -> dict[str, Any]:
    """Send SIGKILL at various points while the second of two windows is written."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def on_call(owner: Any, name: str, number: int, last: Callable[..., object]) -> None:
        original, calls = getattr(owner, name), iter(range(1, 99))

        def replacement(*arguments: Any) -> Any:
            return last(original, *arguments) if next(calls) == number else original(*arguments)

        setattr(owner, name, replacement)

    def half_an_export(export: Callable[..., None], session: Any, file: Path) -> None:
        export(session, file)
        os.truncate(file, file.stat().st_size // 2)
        die()

    def half_a_pack(pack: Callable[..., object], file: Path, parts: list[Any]) -> None:
        def dying() -> Iterator[Any]:
            yield from parts
            die()

        pack(file, dying())

    points: dict[str, Callable[[], None]] = {
        "export": lambda: on_call(ProfilerSession, "export", 2, half_an_export),
        "verification": lambda: on_call(writer, "_read_verified", 2, die),
        "packing": lambda: on_call(writer, "_pack", 2, half_a_pack),
        "publication": lambda: on_call(writer, "_publish", 3, die),
        "manifest": lambda: on_call(writer, "_publish", 4, die),
    }

    def run(point: str) -> None:
        points[point]()
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


def preempt(out: Path, recorded: bool) -> None:
    """Under torchrun: once all ranks are in a backward pass, rank 0 sends SIGTERM to the agent; no rank continues."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def wait_for_the_end(call: int) -> None:
        if call == 2:
            (out / f"reached-{rank}").touch()
            until(lambda: len(list(out.glob("reached-*"))) == ranks)
            if rank == 0:
                os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(TIMEOUT_S)

    dist.init_process_group("gloo")
    train(out / "runs" if recorded else None, steps=6, during_backward=wait_for_the_end)


# ---- peers -------------------------------------------------------------------------------------------------------


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def join(rank: int, port: int) -> None:
    """Join a group of two ranks that appear to be on different hosts, so that they compare clocks."""
    process._host_id = lambda: f"host-{rank}"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def stopped(out: Path) -> dict[str, Any]:
    """Stop rank 1 as its window closes. Rank 0 closes its window meanwhile, and then continues rank 1."""
    port = free_port()

    def step() -> None:
        dist.all_reduce(torch.ones(2))

    def rank_1() -> None:
        join(1, port)
        measure, calls = HostClock.measure, iter(range(1, 99))

        def stop_first(clock: HostClock) -> None:
            if next(calls) == 2:
                os.kill(os.getpid(), signal.SIGSTOP)
            measure(clock)

        HostClock.measure = stop_first  # type: ignore[method-assign]
        recorded = probe(path=out / "runs", **ONE_WINDOW)(step)
        for _ in range(4):
            recorded()
        dist.barrier()

    peer = in_child(rank_1)

    def peer_is_stopped() -> bool:
        return Path(f"/proc/{peer}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def rank_0() -> None:
        join(0, port)

        @probe(path=out / "runs", **ONE_WINDOW)
        def recorded(call: int) -> None:
            if call == 2:  # the probe has written the window
                (out / "closed-beside-a-stopped-peer").write_text(str(peer_is_stopped()))
                os.kill(peer, signal.SIGCONT)
            step()

        for call in range(4):
            if call == 2:
                until(peer_is_stopped)
            recorded(call)
        dist.barrier()

    other = in_child(rank_0)
    codes = [exit_code_of(other)]
    os.kill(peer, signal.SIGCONT)
    return {"codes": [*codes, exit_code_of(peer)]}


def deserted(out: Path) -> dict[str, Any]:
    """Kill rank 0, and the store that it serves, before the window of rank 1 opens."""
    port = free_port()
    read, write = os.pipe()
    through, say_through = os.pipe()

    def rank_0() -> None:
        join(0, port)

        @probe(path=out / "runs", skip=2, warmup=1, steps=2)
        def recorded(call: int) -> None:
            dist.barrier()
            if call == 1:
                os.read(through, 1)  # until rank 1 no longer needs rank 0
                os.kill(os.getpid(), signal.SIGKILL)

        for call in range(9):
            recorded(call)

    def rank_1() -> None:
        os.close(write)
        join(1, port)

        @probe(path=out / "runs", skip=2, warmup=1, steps=2)
        def recorded(call: int) -> None:
            if call < 2:
                dist.barrier()
            if call == 1:
                os.write(say_through, b"x")
                os.read(read, 1)  # until rank 0 is dead and the other end closed
            torch.ones(2).sum()

        for call in range(9):
            recorded(call)

    children = [in_child(rank_0), in_child(rank_1)]
    os.close(write)
    return {"codes": [exit_code_of(child) for child in children]}


FAULTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "kill": kill,
    "terminate": terminate,
    "stopped": stopped,
    "deserted": deserted,
}


def main() -> None:
    fault, out, *rest = sys.argv[1:]
    folder = Path(out)
    if fault == "preempt":
        preempt(folder, rest == ["recorded"])
        return
    if fault == "disk":
        facts = disk(folder, Path(rest[0]))
    else:
        train(None)  # so that torch loads what it needs before the forks
        facts = {name: run(make(folder / name)) for name, run in FAULTS.items()}
    (folder / "facts.json").write_text(json.dumps(facts))
    if fault == "disk":
        sys.exit(7)


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
