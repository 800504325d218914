"""Training whose peer stops or dies: `peers_worker.py OUT` writes `OUT/<fault>/facts.json`."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist

from tests.integration.faulty_training import ONE_WINDOW, exit_code_of, in_child, run_faults, until
from tracekit.capture.job import process
from tracekit.capture.job.clock import HostClock
from tracekit.capture.probe import probe


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


if __name__ == "__main__":
    run_faults({"stopped": stopped, "deserted": deserted}, Path(sys.argv[1]))
