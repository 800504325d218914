"""The training that `capture_overhead.py` records: a small transformer, one process, one thread, always the same."""

from __future__ import annotations

import functools
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["KINETO_LOG_LEVEL"] = "99"

import torch
import torch.distributed as dist
from torch import nn

import tracekit

FLAGS = {"record_shapes": True}  # the probe's defaults
SKIP, WARMUP = 3, 1
WIDTH, HEADS, LAYERS, TOKENS, BATCH, VOCABULARY = 64, 4, 4, 32, 8, 256


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(BATCH, TOKENS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))


class Block(nn.Module):
    def __init__(self, group: Any) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + summed(self.attention(self.norms[0](x)), self.group)
        return x + summed(self.mlp(self.norms[1](x)), self.group)


class Transformer(nn.Module):
    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(group) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def summed(x: torch.Tensor, group: Any) -> torch.Tensor:
    return x if group is None else _Sum.apply(x, group)


class Job:
    def __init__(self, workload: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._began: list[int] = []
        self._ended: list[int] = []
        group = None
        if workload == "parallel":
            from torch.testing._internal.distributed.fake_pg import FakeStore

            dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
            group = dist.new_group([0, 1])
        self._model = Transformer(group)
        self._parameters = list(self._model.parameters())
        self._replicas = None if group is None else dist.new_group([0, 2])
        self._optimizer = torch.optim.AdamW(self._parameters)
        self._tokens = torch.randint(VOCABULARY, (BATCH, TOKENS + 1))

    def run_alone(self, steps: int) -> None:
        for _ in range(SKIP + WARMUP + steps + 1):
            self._step()

    def run_with_profiler(self, folder: Path, steps: int, ready: Callable[[], None]) -> None:
        ready()
        profile = functools.partial(
            torch.profiler.profile,
            activities=[torch.profiler.ProfilerActivity.CPU],
            experimental_config=torch._C._profiler._ExperimentalConfig(trace_only=True),  # as in the probe
            **FLAGS,
        )
        schedule = torch.profiler.schedule(wait=SKIP, warmup=WARMUP, active=steps, repeat=1)

        def export(profiler: torch.profiler.profile) -> None:
            profiler.export_chrome_trace(str(folder / "trace.json"))

        with profile(schedule=schedule, on_trace_ready=export) as profiler:
            for _ in range(SKIP + WARMUP + steps + 1):
                self._step()
                profiler.step()

    def run_with_probe(self, folder: Path, steps: int, ready: Callable[[], None]) -> None:
        ready()
        step = tracekit.probe(path=folder, skip=SKIP, warmup=WARMUP, steps=steps)(self._step)
        for _ in range(SKIP + WARMUP + steps + 1):
            step()

    def window_ns(self, steps: int) -> int:
        """Return the CPU time from the beginning of the first recorded step to the end of the last."""
        first = SKIP + WARMUP
        return self._ended[first + steps - 1] - self._began[first]

    @staticmethod
    def read(folder: Path) -> tuple[int, int | None]:
        """Return the number of events of the one trace below `folder`, and the recording cost a step that it states."""
        (file,) = folder.rglob("*.json.gz")
        trace = json.loads(gzip.decompress(file.read_bytes()))
        return len(trace["traceEvents"]), trace["tracekit"]["overhead"]["per_step_ns"]

    def _step(self) -> None:
        self._began.append(time.process_time_ns())
        self._optimizer.zero_grad()
        logits = self._model(self._tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), self._tokens[:, 1:].flatten())
        loss.backward()
        if self._replicas is not None:
            for parameter in self._parameters:
                dist.all_reduce(parameter.grad, group=self._replicas)
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._ended.append(time.process_time_ns())
