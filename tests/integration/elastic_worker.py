"""An elastic job of one process, which Gloo can always restart: `elastic_worker.py OUT`.

The first attempt fails after a window.
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

from tracekit.capture.probe import probe

dist.init_process_group("gloo")


@probe(path=sys.argv[1], skip=0, warmup=0, steps=1)
def step() -> None:
    dist.barrier()


step()
step()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)
dist.destroy_process_group()
