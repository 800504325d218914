"""Expert parallel within data parallel: tokens are sent to the ranks of their experts and back, in each layer."""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.gpu_jobs.host import MAIN
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

TOKENS, HIDDEN = 4096, 1024  # of a rank and microbatch; elements of a token
# Autograd functions of Megatron-LM: core/tensor_parallel/mappings.py, core/transformer/moe/fused_a2a.py.
OPERATORS = {
    "all_to_all": {"dispatch": "_AllToAll", "combine": "_AllToAll"},
    "kernels": {"dispatch": "FusedDispatch", "combine": "FusedCombine"},
}
DENSE = 0.5  # share of attention in a layer's time; the rest is the experts'


def train(rank: Rank) -> Loop:
    spec = rank.spec
    layers = range(spec.layers)
    for number in steps(rank):
        load_batch(rank)
        for layer in layers:
            routing = tokens_of(rank, number, layer)
            yield forward_layer(rank, (layer, "attention"), DENSE)
            if spec.dispatch == "all_to_all":
                yield rank.item()  # the host needs the number of tokens for each expert
            exchange(rank, routing, "dispatch")
            yield forward_layer(rank, (layer, "experts"), (1 - DENSE) * routing.load)
            exchange(rank, routing, "combine")
        for layer in reversed(layers):
            routing = tokens_of(rank, number, layer)
            with autograd_node(rank, OPERATORS[spec.dispatch]["combine"] + "Backward"):
                exchange(rank, routing, "dispatch")  # gradients go the way of the tokens
            yield backward_layer(rank, (layer, "experts"), (1 - DENSE) * routing.load)
            with autograd_node(rank, OPERATORS[spec.dispatch]["dispatch"] + "Backward"):
                exchange(rank, routing, "combine")
            yield backward_layer(rank, (layer, "attention"), DENSE)
        reductions = [rank.collective(rank.groups["dp"], "all_reduce", spec.gradient_us / 2)]
        if "edp" in rank.groups:
            reductions.append(rank.collective(rank.groups["edp"], "all_reduce", spec.gradient_us / 2))
        rank.wait(*reductions)
        optimizer_step(rank)
        yield end_of_step(rank)


@dataclass(frozen=True)
class Routing:
    """How many tokens a rank sends to each member of its group, and receives from each, in one layer of one step.

    Attributes:
        load: tokens that its experts get, relative to an even share.
        busiest: the highest number that a member sends or receives, relative to an even share.
    """

    sent: tuple[int, ...]
    received: tuple[int, ...]
    load: float
    busiest: float


def tokens_of(rank: Rank, step: int, layer: int) -> Routing:
    """Draw which tokens go where, the same on all ranks. A hot expert takes tokens away from all others."""
    group = rank.groups["ep"]
    size = len(group.ranks)
    rng = random.Random(f"tokens {rank.spec.seed} {group.uid} {step} {layer}")
    hot = rank.defect.hot_expert
    table = []
    for _source in group.ranks:
        shares = [1 + rng.uniform(-1, 1) * rank.spec.jitter for _ in group.ranks]
        if hot in group.ranks:
            shares = [
                share
                + (rank.defect.additional_tokens if member == hot else -rank.defect.additional_tokens / (size - 1))
                for member, share in zip(group.ranks, shares, strict=True)
            ]
        table.append([round(TOKENS / size * share) for share in shares])
    own = group.ranks.index(rank.rank)
    received = [row[own] for row in table]
    totals = [sum(row) for row in table] + [sum(row[member] for row in table) for member in range(size)]
    return Routing(tuple(table[own]), tuple(received), sum(received) / TOKENS, max(totals) / TOKENS)


def exchange(rank: Rank, routing: Routing, kind: str) -> None:
    """Dispatch tokens to the experts, or combine what they return. It takes as long as its busiest member."""
    spec, group = rank.spec, rank.groups["ep"]
    sent, received = (routing.sent, routing.received)[:: 1 if kind == "dispatch" else -1]
    exchange_us = spec.exchange_us * routing.busiest
    forward = rank.thread == MAIN
    with rank.operators([OPERATORS[spec.dispatch][kind]] if forward else []):
        if spec.dispatch == "all_to_all":
            splits = tuple(count * HIDDEN for count in sent), tuple(count * HIDDEN for count in received)
            elements = sum(splits[1])
            rank.collective(group, "all_to_all", exchange_us, blocking=True, splits=splits, elements=elements)
        else:
            template = "<8, 768, 8192>" if kind == "dispatch" else "<__nv_bfloat16, 8, 768, 4096>"
            kernel = f"void {spec.dispatch_namespace}::intranode::{kind}{template}(int4*, float*)"
            rank.exchange(group, kind, kernel, exchange_us, sum(received) * HIDDEN)
