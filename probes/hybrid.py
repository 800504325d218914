"""Several parallelisms at once, on a mesh of two or three dimensions of two ranks each.

    torchrun --standalone --nproc-per-node 4 probes/hybrid.py --sleep-compute                 dp 2 x tp 2
    torchrun --standalone --nproc-per-node 8 probes/hybrid.py --sleep-compute                 dp 2 x pp 2 x tp 2

On four ranks: FSDP2 (`--ddp`: DDP) over dp and tensor parallel over tp. On eight ranks also a pipeline of two stages
(1F1B) over pp. Expected findings:

* The strategies are fsdp2 (or ddp) and tp, with eight ranks also pp. `run.mesh` has the coordinate of each rank. Every
  rank has a group of two ranks along each dimension, with its parallelism.
* The collectives of tp are listed by module, under tp; those of FSDP by module, under fsdp.
* `--slow-rank 5 --delay-ms 10` (with `--sleep-compute`): each block of rank 5 takes 10 ms longer forward: "rank 5
  computes ... longer". The ranks that wait for it are not named: its peer in tp, the other stage in pp, the replica in
  dp.
* `--unnamed`: a mesh without names of dimensions. Tensor parallelism is then written by hand, as submeshes are selected
  by name. The result is the same; the names of the dimensions come from their use.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel

import tracekit
from blocks import Block, shard_by_hand, shard_with_dtensor
from job import Job, job, train, training_options

WIDTH, LAYERS = 32, 4
BATCH, SEQUENCE, MICRO_BATCHES = 8, 16, 4
SLEEP_S = 0.002


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    shape, names = ((2, 2, 2), ("dp", "pp", "tp")) if process.world_size == 8 else ((2, 2), ("dp", "tp"))
    mesh = init_device_mesh(process.device.type, shape, mesh_dim_names=None if options.unnamed else names)
    along = {name: mesh.get_group(number) for number, name in enumerate(names)}
    torch.manual_seed(0)  # the same on all ranks: they hold parts of one model
    forward_s = SLEEP_S if options.sleep_compute else 0.0
    if process.rank == options.slow_rank:
        forward_s += options.delay_ms / 1000
    layers = nn.Sequential(*(Block(WIDTH, forward_s) for _ in range(LAYERS)))
    if "pp" in along:
        mine = dist.get_rank(along["pp"])
        layers = layers[mine * LAYERS // 2 : (mine + 1) * LAYERS // 2]
    layers = layers.to(process.device)
    if options.unnamed:
        shard_by_hand(layers, along["tp"])
    else:
        shard_with_dtensor(layers, mesh["tp"])
    model = data_parallel(layers, mesh, along["dp"], options, process)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    forward_backward = pipeline(model, along["pp"], process) if "pp" in along else whole(model)
    batches = torch.Generator().manual_seed(1 + dist.get_rank(along["dp"]))

    @tracekit.probe(path=options.out, steps=options.recorded)
    def train_step() -> Tensor | None:
        optimizer.zero_grad(set_to_none=True)
        x = torch.randn(BATCH, SEQUENCE, WIDTH, generator=batches).to(process.device)
        loss = forward_backward(x, torch.roll(x, 1, dims=-1))
        optimizer.step()
        return loss

    train(train_step, options.steps, prints=dist.get_rank(along["dp"]) == dist.get_rank(along["tp"]) == 0)


def data_parallel(
    layers: nn.Module, mesh: DeviceMesh, group: dist.ProcessGroup, options: argparse.Namespace, process: Job
) -> nn.Module:
    if options.ddp:
        _pre_dp_module_transform(layers)  # DDP takes the local parts of tensor-parallel parameters
        return DistributedDataParallel(layers, process_group=group)
    over = DeviceMesh.from_group(group, process.device.type) if options.unnamed else mesh["dp"]
    for block in layers.children():
        fully_shard(block, mesh=over)
    return fully_shard(layers, mesh=over)


def whole(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor | None]:
    def run(x: Tensor, target: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        return loss.detach()

    return run


def pipeline(model: nn.Module, group: dist.ProcessGroup, process: Job) -> Callable[[Tensor, Tensor], Tensor | None]:
    place, stages = dist.get_rank(group), dist.get_world_size(group)
    stage = PipelineStage(model, place, stages, process.device, group=group)
    schedule = Schedule1F1B(stage, n_microbatches=MICRO_BATCHES, loss_fn=nn.functional.mse_loss)

    def run(x: Tensor, target: Tensor) -> Tensor | None:
        if place == 0:
            schedule.step(x)
            return None
        losses: list[Tensor] = []
        schedule.step(target=target, losses=losses)
        return torch.stack(losses).mean().detach()

    return run


def parse_options() -> argparse.Namespace:
    parser = training_options(
        "Training on a mesh: data, pipeline and tensor parallel.", out="runs/hybrid", steps=6, recorded=2
    )
    parser.add_argument("--ddp", action="store_true", help="DDP instead of FSDP2")
    parser.add_argument("--unnamed", action="store_true", help="a mesh without names of dimensions")
    parser.add_argument("--slow-rank", type=int, default=-1, help="rank whose blocks take longer")
    parser.add_argument("--delay-ms", type=float, default=10.0, help="by how much, a block and micro-batch")
    parser.add_argument("--sleep-compute", action="store_true", help="layers sleep as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
