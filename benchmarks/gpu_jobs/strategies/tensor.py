"""Tensor parallel within data parallel, as Megatron: each layer ends in an all-reduce that compute waits for."""

from __future__ import annotations

from benchmarks.gpu_jobs.rank import Rank
from benchmarks.gpu_jobs.strategies.model import (
    Loop,
    autograd_node,
    backward_layer,
    end_of_step,
    forward_layer,
    load_batch,
    optimizer_step,
    reduce_gradients,
    steps,
)


def train(rank: Rank) -> Loop:
    spec = rank.spec
    layers = range(spec.layers)
    for _ in steps(rank):
        load_batch(rank)
        for layer in layers:
            yield forward_layer(rank, layer)
            rank.collective(rank.groups["tp"], "all_reduce", spec.exchange_us, blocking=True)
        for layer in reversed(layers):
            yield backward_layer(rank, layer)
            with autograd_node(rank, "_CopyToModelParallelRegionBackward"):
                rank.collective(rank.groups["tp"], "all_reduce", spec.exchange_us, blocking=True)
        reduce_gradients(rank)
        optimizer_step(rank)
        yield end_of_step(rank)
