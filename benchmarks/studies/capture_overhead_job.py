"""The training that `capture_overhead.py` records: a small transformer, one process, one thread, always the same."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import os
import time
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
HEADS, VOCABULARY = 4, 256
# Width, layers, tokens, batch.
SIZES = {"transformer": (64, 4, 32, 8), "parallel": (64, 4, 32, 8), "gpt": (16, 12, 8, 2)}


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width: int, group: Any) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + summed(self.attention(self.norms[0](x)), self.group)
        return x + summed(self.mlp(self.norms[1](x)), self.group)


class Transformer(nn.Module):
    def __init__(self, width: int, layers: int, group: Any = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, group) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

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
        self._began: list[int] = []  # CPU time of the process as a step begins
        self._ended: list[int] = []
        group = None
        if workload == "parallel":
            from torch.testing._internal.distributed.fake_pg import FakeStore

            dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
            group = dist.new_group([0, 1])
        width, layers, tokens, batch = SIZES[workload]
        self._model = Transformer(width, layers, group)
        self._parameters = list(self._model.parameters())
        self._replicas = None if group is None else dist.new_group([0, 2])
        self._optimizer = torch.optim.AdamW(self._parameters)
        self._tokens = torch.randint(VOCABULARY, (batch, tokens + 1))

    def run_alone(self, steps: int) -> None:
        self._began, self._ended = [], []
        for _ in range(SKIP + WARMUP + steps + 1):
            self._step()

    def run_with_profiler(self, folder: Path, steps: int) -> None:
        self._began, self._ended = [], []
        activity = torch.profiler.ProfilerActivity
        profile = functools.partial(
            torch.profiler.profile,
            activities=[activity.CPU, activity.CUDA] if self._tokens.is_cuda else [activity.CPU],
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

    def run_with_probe(self, folder: Path, steps: int) -> None:
        self._began, self._ended = [], []
        probe = tracekit.probe(path=folder, skip=SKIP, warmup=WARMUP, steps=steps, quiet=True)
        step = probe(self._step)
        for _ in range(SKIP + WARMUP + steps + 1):
            step()
        probe.finish()

    def step_ns(self, steps: int) -> list[int]:
        """Return the CPU time of each recorded step, and of what is between it and the next.

        The first item is the time from the end of the warm-up to the beginning of the first recorded step.
        """
        first = SKIP + WARMUP
        begins_ns = [self._ended[first - 1], *self._began[first : first + steps], self._ended[first + steps - 1]]
        return [end_ns - begin_ns for begin_ns, end_ns in itertools.pairwise(begins_ns)]

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
