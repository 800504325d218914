"""Records collectives of every kind under torchrun: `join_worker.py OUT`. Each scenario has its folder."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

from tests.old_torch import GLOO_EXCHANGES_LISTS, GLOO_SCATTERS_LISTS
from tracekit.capture.probe import probe

OUT = Path(sys.argv[1])
dist.init_process_group("gloo")
RANK, RANKS = dist.get_rank(), dist.get_world_size()
GROUPS = [dist.new_group(list(range(RANKS))) for _ in range(3)]
# Kept to the end: a Gloo thread that frees a Python tensor after the interpreter is gone aborts the process.
LAST = [torch.ones(70) for _ in range(3)]


def blocking() -> None:
    whole, part = torch.ones(RANKS * 100), torch.ones(100)
    dist.all_reduce(part)
    dist.broadcast(part, 0)
    dist.all_gather_into_tensor(whole, part)
    dist.reduce_scatter_tensor(part, whole)
    dist.all_to_all_single(torch.empty(RANKS * 10), torch.ones(RANKS * 10))


def asynchronous() -> None:
    for work in [dist.all_reduce(torch.ones(n), async_op=True) for n in (50, 50, 50, 7, 8)]:
        work.wait()


def lists() -> None:
    dist.all_gather([torch.empty(30) for _ in range(RANKS)], torch.ones(30))
    with contextlib.suppress(RuntimeError):  # Gloo rejects different sizes: an operator without a collective
        dist.all_gather([torch.empty(30 + rank) for rank in range(RANKS)], torch.ones(30 + RANK))
    if GLOO_SCATTERS_LISTS:
        dist.reduce_scatter(torch.empty(20), [torch.ones(20) for _ in range(RANKS)])
    if GLOO_EXCHANGES_LISTS:
        dist.all_to_all([torch.empty(10) for _ in range(RANKS)], [torch.ones(10) for _ in range(RANKS)])


def objects() -> None:
    dist.all_gather_object([None] * RANKS, {"rank": RANK})
    dist.broadcast_object_list([RANK, "text"], src=0)
    dist.gather_object({"rank": RANK}, [None] * RANKS if RANK == 0 else None, dst=0)
    dist.scatter_object_list([None], list(range(RANKS)) if RANK == 0 else None, src=0)


def coalesced() -> None:
    tensors = [torch.ones(10 + i) for i in range(3)]
    with _coalescing_manager(async_ops=True) as pending:
        for tensor in tensors:
            dist.all_reduce(tensor)
    pending.wait()
    with _coalescing_manager():
        for tensor in tensors:
            dist.all_gather_into_tensor(torch.empty(RANKS * len(tensor)), tensor)


def barriers() -> None:
    dist.barrier()
    dist.monitored_barrier()
    dist.barrier(async_op=True).wait()


def rooted() -> None:
    dist.reduce(torch.ones(40), 0)
    dist.gather(torch.ones(41), [torch.empty(41) for _ in range(RANKS)] if RANK == 0 else None, dst=0)
    dist.scatter(torch.empty(42), [torch.ones(42) for _ in range(RANKS)] if RANK == 0 else None, src=0)


def split_sizes() -> None:
    send_splits, receive_splits = [3 + rank for rank in range(RANKS)], [3 + RANK] * RANKS
    dist.all_to_all_single(torch.empty(sum(receive_splits)), torch.ones(sum(send_splits)), receive_splits, send_splits)


def messages() -> None:
    send, receive = torch.ones(11), torch.empty(11)
    ahead, behind = (RANK + 1) % RANKS, (RANK - 1) % RANKS
    operations = [dist.P2POp(dist.isend, send, ahead), dist.P2POp(dist.irecv, receive, behind)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def several_groups() -> None:
    forth = [dist.all_reduce(torch.ones(64), group=group, async_op=True) for group in GROUPS]
    back = [dist.all_reduce(torch.ones(64), group=group, async_op=True) for group in reversed(GROUPS)]
    for work in forth + back:
        work.wait()


def group_of_a_step() -> None:
    group = dist.new_group(list(range(RANKS)))
    dist.all_reduce(torch.ones(8), group=group)
    dist.destroy_process_group(group)


def two_threads() -> None:
    other = threading.Thread(target=lambda: [dist.all_reduce(torch.ones(16), group=GROUPS[0]) for _ in range(5)])
    other.start()
    for _ in range(5):
        dist.all_reduce(torch.ones(16), group=GROUPS[1])
    other.join()


def functional_collectives() -> None:
    functional.wait_tensor(functional.all_reduce(torch.ones(12), "sum", GROUPS[0]))
    functional.wait_tensor(functional.all_to_all_single(torch.ones(2 * RANKS), None, None, GROUPS[1]))
    for tensor in functional.all_reduce_coalesced([torch.ones(12), torch.ones(3)], "sum", GROUPS[0]):
        functional.wait_tensor(tensor)


def record(scenario: Callable[[], None]) -> None:
    recorder = probe(path=OUT / scenario.__name__, skip=0, warmup=0, steps=2)
    step = recorder(scenario)
    step()
    step()
    recorder.finish()


def record_across_edges() -> None:
    """Rank 0 issues a collective before, in and after the window; rank 1 takes part after its last step."""
    recorder = probe(path=OUT / "edges", skip=1, warmup=1, steps=1)
    pending = []

    @recorder
    def step() -> None:
        if RANK == 0:
            pending.append(dist.all_reduce(LAST[len(pending)], async_op=True))

    for _ in range(3):
        step()
    recorder.finish()
    dist.barrier(group=GROUPS[0])  # rank 1 may be ahead
    if RANK != 0:
        pending += [dist.all_reduce(tensor, async_op=True) for tensor in LAST]
    for work in pending:
        work.wait()


for scenario in (
    *(blocking, asynchronous, lists, objects, coalesced, barriers, rooted, split_sizes, messages, several_groups),
    *(group_of_a_step, two_threads, functional_collectives),
):
    record(scenario)
record_across_edges()
dist.barrier()
dist.destroy_process_group()
