"""Ranks of the DeepSpeed tests, under torchrun: ZeRO 1, 2 and 3, without recording and recorded in `<out>/zero<n>`.

Writes `<out>/facts-<rank>.json`: what training itself observed, for the tests to compare with the recordings.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.ops import __compatible_ops__
from deepspeed.runtime.engine import DeepSpeedEngine
from torch import nn

from tracekit.capture.probe import probe

WIDTH, STEPS = 64, 6
# Small limits, so that a small model has several buckets, and parameters are prefetched and gathered repeatedly.
OPTIONS: dict[int, dict[str, Any]] = {
    1: {"reduce_bucket_size": 5000},
    2: {"reduce_bucket_size": 5000},
    3: {
        "reduce_bucket_size": 9000,
        "stage3_param_persistence_threshold": 0,
        "stage3_prefetch_bucket_size": 4200,
        "stage3_max_reuse_distance": 0,
        "stage3_max_live_parameters": 9000,
    },
}


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def train(stage: int, out: Path | None) -> dict[str, Any]:
    """Return the losses of a training run, recorded below `out` unless that is None."""
    gc.collect()  # frees the previous run
    torch.manual_seed(0)
    model = Stack()
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": stage, **OPTIONS[stage]},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    batches = torch.Generator().manual_seed(1 + dist.get_rank())

    def step() -> float:
        loss = engine(torch.randn(8, WIDTH, generator=batches)).square().mean()
        engine.backward(loss)
        engine.step()
        return loss.item()

    recorder = probe(path=out, skip=2, warmup=1, steps=2) if out else None
    recorded = recorder(step) if recorder else step
    forward = vars(DeepSpeedEngine)["forward"]
    losses = [recorded() for _ in range(STEPS)]
    engine.destroy()
    return {"losses": losses, "restored": vars(DeepSpeedEngine)["forward"] is forward}


def main() -> None:
    out = Path(sys.argv[1])
    # Else DeepSpeed compiles an operator for reductions in shared memory, which takes a minute.
    __compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    # The recorded run first: an engine of ZeRO 3 outlives its destruction, and the memory of live objects is counted.
    facts = {
        f"zero{n}": {"recorded": train(n, out / f"zero{n}"), "plain": train(n, None), "options": options}
        for n, options in OPTIONS.items()
    }
    (out / f"facts-{dist.get_rank()}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
