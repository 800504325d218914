"""The parts of a training step that all loops share: the batch, a layer forward and backward, the optimizer."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.gpu_jobs.gpu import Synchronize
from benchmarks.gpu_jobs.rank import Rank

Loop = Generator[Synchronize | None, None, None]
"""A training loop. It yields what its host waits for; None is nothing."""

FIRST_STEP = 3  # of the recording: the profiler skips some
LOADING_US = 30.0
BATCH_BYTES, BATCH_US = 8 << 20, 40.0
BACKWARD = 2  # times forward
MATMUL = 0.6  # share of a layer's time


def steps(rank: Rank) -> Iterator[int]:
    """Iterate over the steps of the recording, each in its `ProfilerStep#` span."""
    for number in range(FIRST_STEP, FIRST_STEP + rank.spec.steps):
        rank.step_number = number
        with rank.label(f"ProfilerStep#{number}"):
            yield number


def load_batch(rank: Rank) -> None:
    """Take a batch from the loader and copy it to the device."""
    with rank.label("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
        rank.spend((LOADING_US if rank.spec.launch_us else 0) + rank.defect.loading_us)
    with rank.operator("aten::to"), rank.operator("aten::_to_copy"), rank.operator("aten::copy_"):
        if rank.spec.launch_us:
            rank.copy("Memcpy HtoD (Pinned -> Device)", BATCH_BYTES, BATCH_US)


def reduce_gradients(rank: Rank) -> None:
    """Average the gradients over the replicas, bucket after bucket; each transfer is waited for."""
    spec = rank.spec
    if spec.dp > 1:
        for _bucket in range(spec.buckets):
            rank.collective(rank.groups["dp"], "all_reduce", spec.gradient_us / spec.buckets, blocking=True)


def forward_layer(rank: Rank, key: Any, times: float = 1.0) -> Synchronize | None:
    """Launch a layer forward. Return what the host waits for: nothing, unless it is slow.

    `key` identifies the layer and its microbatch; its backward has the same sequence numbers.
    """
    layer_us = rank.spec.layer_us * times
    first = rank.next_sequence(key)
    with rank.operator("aten::linear"):
        rank.compute("ampere_sgemm_128x64_tn", MATMUL * layer_us, "aten::addmm", sequence=first)
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)"
    rank.compute(name, (1 - MATMUL) * layer_us, "aten::gelu", sequence=first + 1)
    _more_work(rank, times)
    return rank.hold_up(times)


def backward_layer(rank: Rank, key: Any, times: float = 1.0) -> Synchronize | None:
    """Launch a layer backward, on the thread of the autograd engine."""
    layer_us = BACKWARD * rank.spec.layer_us * times
    first = rank.sequences.pop(key)
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl>(int)"
    with rank.autograd():
        with _node(rank, "GeluBackward0", first + 1):
            rank.compute(name, (1 - MATMUL) * layer_us, "aten::gelu_backward")
        with _node(rank, "AddmmBackward0", first):
            rank.compute("ampere_sgemm_128x64_nn", MATMUL * layer_us / 2, "aten::mm")
            rank.compute("ampere_sgemm_128x64_nt", MATMUL * layer_us / 2, "aten::mm")
            _more_work(rank, BACKWARD * times)
    return rank.hold_up(BACKWARD * times)


@contextmanager
def autograd_node(rank: Rank, name: str) -> Iterator[None]:
    """Run a node of the autograd graph, or a hook of it, on the engine's thread."""
    with rank.autograd(), rank.operators((f"autograd::engine::evaluate_function: {name}", name)):
        yield


def _node(rank: Rank, name: str, sequence: int) -> Any:
    return rank.operators(
        (f"autograd::engine::evaluate_function: {name}", name), **{"Sequence number": sequence, "Fwd thread id": 1}
    )


def _more_work(rank: Rank, forwards: float) -> None:
    """Launch what a rank with more work does in addition, in kernels of its own.

    They draw no random numbers, so that the others are as long as in the same job without them.
    """
    if rank.defect.additional_us:
        for _ in range(2):
            half_us = rank.defect.additional_us * forwards / 2
            rank.compute("ampere_sgemm_64x64_tn", half_us, "aten::bmm", exact=True)


def optimizer_step(rank: Rank) -> None:
    with rank.label("Optimizer.step#AdamW.step"):
        for part in ("lerp", "addcdiv", "add", "sqrt"):
            name = f"void at::native::multi_tensor_apply_kernel<at::native::{part}>(int)"
            rank.compute(name, rank.spec.optimizer_us / 4, f"aten::_foreach_{part}_")


def end_of_step(rank: Rank) -> Synchronize | None:
    """Read the loss, if the job does that in each step. Return what the host waits for."""
    return rank.item() if rank.spec.synced else None
