"""Distributed data parallel: gradients are reduced in buckets while backward continues."""

from __future__ import annotations

from benchmarks.gpu_jobs.engine import Kernel
from benchmarks.gpu_jobs.rank import Rank
from benchmarks.gpu_jobs.strategies.model import (
    Loop,
    autograd_node,
    backward_layer,
    end_of_step,
    forward_layer,
    load_batch,
    optimizer_step,
    steps,
)

FIRST_BUCKET, LAST_BUCKET = 0.5, 1.2  # times the size of the others: the first is limited, the last has what remains


def train(rank: Rank) -> Loop:
    spec = rank.spec
    layers = range(spec.layers)
    last_of_bucket = {bucket * spec.layers // spec.buckets for bucket in range(spec.buckets)}
    buckets_us = bucket_times_us(spec.gradient_us, spec.buckets)
    for _ in steps(rank):
        load_batch(rank)
        with rank.label("DistributedDataParallel.forward"):
            for layer in layers:
                yield forward_layer(rank, layer)
        reductions: list[Kernel] = []
        for layer in reversed(layers):
            yield backward_layer(rank, layer)
            if layer in last_of_bucket:
                with autograd_node(rank, "torch::autograd::AccumulateGrad"):
                    bucket_us = buckets_us[len(reductions)]
                    reductions.append(rank.collective(rank.groups["dp"], "all_reduce", bucket_us))
        with rank.autograd():
            rank.wait(*reductions)
        optimizer_step(rank)
        yield end_of_step(rank)


def bucket_times_us(gradient_us: float, buckets: int) -> list[float]:
    """Return how long the transfer of each bucket takes, in the order of their launch."""
    shares = [FIRST_BUCKET, *[1.0] * (buckets - 2), LAST_BUCKET] if buckets > 1 else [1.0]
    return [gradient_us * share / sum(shares) for share in shares]
