"""Training whose launcher gets SIGTERM: torchrun runs `preemption_worker.py OUT bare|recorded` in two ranks."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch.distributed as dist

from tests.integration.faulty_training import TIMEOUT_S, train, until


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


if __name__ == "__main__":
    preempt(Path(sys.argv[1]), sys.argv[2] == "recorded")
