"""Plays an elastic agent: `elastic_attempts.py OUT` runs an attempt of two workers, then one of a single worker.

The workers find each other through the agent's store. They are processes of torchrun's kind, so that forked.py can give
some that have torch already.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler as of_launcher

from tracekit.capture.probe import probe


def agent() -> None:
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    for attempt, world_size in enumerate((2, 1)):
        job = {
            "TORCHELASTIC_RUN_ID": "shrinking",
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(store.port),
            "WORLD_SIZE": str(world_size),
        }
        command = [sys.executable, __file__, sys.argv[1], "worker"]
        workers = [of_launcher.Popen(command, env=os.environ | job | {"RANK": str(r)}) for r in range(world_size)]
        assert [worker.wait(timeout=60) for worker in workers] == [0] * world_size


def worker() -> None:
    dist.init_process_group("gloo")

    @probe(path=sys.argv[1], skip=0, warmup=0, steps=1)
    def step() -> None:
        dist.all_reduce(torch.ones(3))

    step()
    step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    worker() if len(sys.argv) > 2 else agent()
