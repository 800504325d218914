"""A tensor-parallel training run: every linear layer is split over all ranks, which see the same batches.

    torchrun --standalone --nproc-per-node 2 probes/tensor.py --sleep-compute

It uses DTensor (`parallelize_module`). `--sequence-parallel` also splits the activations between the layers by
sequence. `--manual` has hand-written collectives in autograd functions instead; both options together are sequence
parallelism by hand, in which the gradients of norms are summed after the backward pass. Expected findings:

* The strategy is tp, with `--sequence-parallel` also sp; there is one group of all ranks, for tp.
* Every collective of a layer blocks it: at most 2 % of the communication overlaps. Most of it is listed under
  `blocks.<n>.up` (backward), `blocks.<n>.down` (forward) and `head`.
* `--slow-rank 1 --delay-ms 20`: "rank 1 computes ... longer than its peer", about 20 ms a step. It waits in the
  next collective (with `--sleep-compute` if ranks share cores).
* `--unnamed`: a mesh without names of dimensions; the result is the same.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import tracekit
from blocks import Network, parameters_of_sequence, shard_by_hand, shard_with_dtensor
from job import add_slow_rank, job, planted_delay_s, train, training_options
from sleeping import sleep

WIDTH, LAYERS, CLASSES = 64, 2, 16
BATCH, SEQUENCE = 8, 32


def main() -> None:
    options = parse_options()
    with job(options) as process:
        torch.manual_seed(0)  # the same on all ranks: they hold parts of one model
        layer_s = options.sleep_ms / 1000 if options.sleep_compute else 0.0
        network = Network(WIDTH, LAYERS, CLASSES, layer_s).to(process.device)
        mesh = init_device_mesh(
            process.device.type, (process.world_size,), mesh_dim_names=None if options.unnamed else ("tp",)
        )
        if options.manual:
            shard_by_hand(network, mesh.get_group(), sequence_parallel=options.sequence_parallel)
        else:
            shard_with_dtensor(network, mesh, sequence_parallel=options.sequence_parallel)
        # Some parameters are DTensors and some are not, which the optimizer's foreach mode does not support.
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, foreach=False)
        batches = torch.Generator().manual_seed(1)
        delay_s = planted_delay_s(options, process)

        @tracekit.probe(path=options.out, steps=options.recorded)
        def train_step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            x = torch.randn(BATCH, SEQUENCE, WIDTH, generator=batches).to(process.device)
            target = torch.randint(CLASSES, (BATCH * SEQUENCE,), generator=batches).to(process.device)
            if options.sequence_parallel:
                x = x.chunk(process.world_size, dim=1)[process.rank].contiguous()
            logits = network(sleep(x, forward_s=delay_s))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target)
            loss.backward()
            if options.manual and options.sequence_parallel:
                for parameter in parameters_of_sequence(network):
                    dist.all_reduce(parameter.grad, group=mesh.get_group())
            optimizer.step()
            return loss.detach()

        train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options("Tensor-parallel training.", out="runs/tensor", recorded=4)
    parser.add_argument("--sequence-parallel", action="store_true", help="split activations by sequence, too")
    parser.add_argument("--manual", action="store_true", help="hand-written collectives instead of DTensor")
    parser.add_argument("--unnamed", action="store_true", help="a mesh without names of dimensions")
    add_slow_rank(parser, "that computes longer")
    parser.add_argument("--sleep-compute", action="store_true", help="layers sleep as well")
    parser.add_argument("--sleep-ms", type=float, default=3.0, help="a layer's forward; its backward takes twice that")
    return parser.parse_args()


if __name__ == "__main__":
    main()
