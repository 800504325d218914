"""A small job of one rank that uses DDP, FSDP2, tensor and pipeline parallelism, for as many observers as possible."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tracekit.capture.probe import probe
from tracekit.capture.probe_object import Probe

STEPS = 3


class Job:
    """`run()` trains a few steps under a probe and returns the losses. Each instance starts from the same seed."""

    def __init__(self, torch: Any, path: Path, **options: Any) -> None:
        torch.manual_seed(0)
        self._torch = torch
        self._models = list(_models(torch))
        self._schedule = _pipeline(torch, self._models[0])
        parameters = [parameter for model in self._models for parameter in model.parameters()]
        self._optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=False)
        self._batches = torch.utils.data.DataLoader(torch.ones(STEPS * 2, 8), batch_size=2)
        self._probe: Probe | None = probe(path=path, **options) if options else None
        self._decorated = self._probe(self._step) if self._probe else self._step

    @property
    def modules(self) -> Sequence[Any]:
        return [module for model in self._models for module in model.modules()]

    def run(self) -> list[float]:
        if self._probe is None:
            return [self._decorated(batch) for batch in self._batches]
        losses = [self._decorated(batch) for batch in self._probe.iterate(self._batches)]
        self._probe.finish()
        return losses

    def _step(self, batch: Any) -> float:
        torch = self._torch
        self._optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            loss = sum(self._run_model(model, batch) for model in self._models[1:])
        loss.backward()
        losses: list[Any] = []
        self._schedule.step(batch, target=torch.zeros(2, 1), losses=losses)
        torch.nn.utils.clip_grad_norm_(self._models[1].parameters(), 1.0)
        self._optimizer.step()
        torch.distributed.all_reduce(torch.ones(2))
        gc.collect(1)
        return math.fsum([loss.item(), *(value.item() for value in losses)])

    def _run_model(self, model: Any, batch: Any) -> Any:
        return self._torch.utils.checkpoint.checkpoint(model, batch, use_reentrant=False).sum()


def _models(torch: Any) -> Iterator[Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def network() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    yield network()  # the pipeline's
    yield torch.nn.parallel.DistributedDataParallel(network())
    sharded = network()
    yield fully_shard(sharded, mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",)))
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    yield parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def _pipeline(torch: Any, model: Any) -> Any:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    stage = PipelineStage(model, 0, 1, torch.device("cpu"))
    return ScheduleGPipe(stage, 2, loss_fn=torch.nn.functional.mse_loss)
