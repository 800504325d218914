"""A training whose device hangs: `hanging_device_worker.py OUT bare|recorded raise|sigterm|end [BLOCKED]`.

The stub device takes `BLOCKED` seconds (default: 30) to synchronise. `raise` raises in the third call; `sigterm` says
that it is blocked, and blocks in C; `end` ends the loop. Under torchrun only rank 1 hangs and fails.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch

from tracekit.capture.probe import probe

out, mode, ending = sys.argv[1:4]
BLOCKED_S = float(sys.argv[4]) if len(sys.argv) > 4 else 30.0
RANK = int(os.environ.get("RANK", "0"))
FAILS = int(os.environ.get("WORLD_SIZE", "1")) - 1 == RANK


def hang_in_c() -> None:
    """Block in C, as a wait for a device does: no signal handler of Python runs."""
    mutex = ctypes.create_string_buffer(64)  # of zeros: an initialised mutex
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)


def install_stub_device() -> None:
    """Let torch's profilers from now on synchronise a device that takes `BLOCKED_S`."""
    stub = ModuleType("stub")
    stub.synchronize = lambda: time.sleep(BLOCKED_S)  # type: ignore[attr-defined]
    stub.current_stream = lambda: SimpleNamespace(query=lambda: False)  # type: ignore[attr-defined]
    torch.stub = stub
    profile = torch.autograd.profiler.profile
    prepare = profile._prepare_trace

    def prepare_with_stub(profiler: Any) -> None:
        prepare(profiler)
        profiler.use_device = "stub"

    profile._prepare_trace = prepare_with_stub


def work(call: int) -> None:
    torch.ones(4).sum()
    if call == 6 and FAILS:
        if ending == "raise":
            raise ValueError("the user's own")
        if ending == "sigterm":
            Path(out, "blocked").touch()
            hang_in_c()


step = work
if mode == "recorded":
    # The first window is complete before the device hangs; the second is open then.
    step = probe(path=Path(out, "runs"), skip=0, warmup=0, steps=2, repeat=2, every=5)(work)
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
for call in range(8):
    if call == 3 and FAILS:
        install_stub_device()
    step(call)
    if "RANK" in os.environ:
        torch.distributed.barrier()
    if ending == "end" and call == 6:
        break
