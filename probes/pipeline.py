"""A pipeline-parallel training run: a stack of layers is cut into stages, and microbatches pass through them.

    torchrun --standalone --nproc-per-node 4 probes/pipeline.py --schedule 1f1b --slow-stage 1 --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. `--schedule` is one of the seven of
`torch.distributed.pipelining`, or `manual`, which uses send and recv in a few lines of this file, or
`manual-forward-only`, without backward. Expected findings (with fewer cores than ranks only with `--sleep-compute`):

* The strategy is pp. `pipeline` shows the schedule, and for each stage and step one forward and one backward for each
  microbatch: B, or I and W if the schedule splits it. Every send is matched to its receive (no note `unlinked`).
* `--slow-stage 1`: "stage 1 (rank 1) takes 2.00 times as long as the other stages", 16 ms forward and 32 backward. The
  bubbles of all other ranks grow, by uneven stages.
* Otherwise bubbles take a little more than the ideal share. With 4 ranks and 8 microbatches that is 3/11 = 27 % for
  gpipe and 1f1b, and 3/19 = 16 % for interleaved1f1b (two stages on each rank). The ideal share is warm-up and drain;
  transfers and, on a busy machine, late peers are the rest.
* The predicted savings of another schedule or of more microbatches can be verified: compare `--schedule 1f1b` with
  `--schedule interleaved1f1b --sleep-ms 4` (two stages on each rank, of half the time), or with
  `--microbatches 16 --sleep-ms 4`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

import tracekit
from job import Job, job, training_options
from sleeping import sleep

WIDTH, LAYERS_A_STAGE, BATCH = 64, 2, 64
CLASSES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved1f1b": "Interleaved1F1B",
    "loopedbfs": "LoopedBFS",
    "interleavedzerobubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
ONE_STAGE_A_RANK = {"gpipe", "1f1b", "manual", "manual-forward-only"}


class Stage(nn.Module):
    """A few layers; it sleeps `slept_s` in the forward, and as much in each half of the backward."""

    def __init__(self, slept_s: float, sleep_compute: bool) -> None:
        super().__init__()
        layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS_A_STAGE)]
        self.layers = nn.Sequential(*([] if sleep_compute else layers))
        self.bias = nn.Parameter(torch.zeros(WIDTH))
        self.slept_s = slept_s

    def forward(self, x: Tensor) -> Tensor:
        if self.slept_s:
            # The gradients of weights and of input sleep separately, so that a schedule can split them. The input of
            # the first stage has no gradient: there the weights sleep for both, so that all stages take equally long.
            halves = 1 if x.requires_grad else 2
            x = sleep(x, forward_s=self.slept_s, backward_s=self.slept_s)
            return self.layers(x + sleep(self.bias, backward_s=halves * self.slept_s))
        return self.layers(x + self.bias)


def main() -> None:
    options = parse_options()
    with job(options) as process:
        torch.manual_seed(0)
        numbers = stage_numbers(options.schedule, process)
        stages = [Stage(slept_s(options, number), options.sleep_compute).to(process.device) for number in numbers]
        optimizer = torch.optim.SGD([p for stage in stages for p in stage.parameters()], lr=0.1)
        if options.schedule in CLASSES:
            run = with_schedule(options, process, numbers, stages)
        else:
            run = by_hand(options, process, stages[0], train=options.schedule == "manual")
        batches = torch.Generator().manual_seed(1)

        @tracekit.probe(path=options.out, steps=options.recorded)
        def train_step(x: Tensor, target: Tensor) -> Tensor | None:
            optimizer.zero_grad()
            loss = run(x, target)
            optimizer.step()
            return loss

        for step in range(options.steps):
            x, target = (torch.randn(BATCH, WIDTH, generator=batches).to(process.device) for _ in range(2))
            loss = train_step(x, target)
            if loss is not None:
                print(f"step {step}: loss {loss.item():.4f}")


def stage_numbers(schedule: str, process: Job) -> list[int]:
    """Return the stages of this rank: one, or two of a schedule that loops or has the form of a V."""
    if schedule in ONE_STAGE_A_RANK:
        return [process.rank]
    back = 2 * process.world_size - 1 - process.rank
    return [process.rank, back if schedule in {"zbv", "dualpipev"} else process.rank + process.world_size]


def slept_s(options: argparse.Namespace, number: int) -> float:
    slower_ms = options.sleep_ms if options.slower_ms is None else options.slower_ms
    slept_ms = options.sleep_compute * options.sleep_ms + (number == options.slow_stage) * slower_ms
    return float(slept_ms) / 1000


def with_schedule(
    options: argparse.Namespace, process: Job, numbers: list[int], modules: list[Stage]
) -> Callable[[Tensor, Tensor], Tensor | None]:
    count = process.world_size * len(numbers)
    pairs = zip(modules, numbers, strict=True)
    stages = [PipelineStage(module, number, count, process.device) for module, number in pairs]
    schedule = get_schedule_class(CLASSES[options.schedule])(
        stages if len(stages) > 1 else stages[0], options.microbatches, loss_fn=nn.functional.mse_loss
    )

    def run(x: Tensor, target: Tensor) -> Tensor | None:
        losses: list[Tensor] = []
        first, last = 0 in numbers, count - 1 in numbers
        schedule.step(*([x] if first else []), **({"target": target, "losses": losses} if last else {}))
        return torch.stack(losses).mean().detach() if last else None

    return run


def by_hand(
    options: argparse.Namespace, process: Job, stage: Stage, train: bool
) -> Callable[[Tensor, Tensor], Tensor | None]:
    """Return a step that runs all microbatches forward, then all backward."""
    first, last = process.rank == 0, process.rank == process.world_size - 1

    def run(x: Tensor, target: Tensor) -> Tensor | None:
        inputs, outputs, sends = [], [], []
        count = options.microbatches
        for micro_x, micro_target in zip(x.chunk(count), target.chunk(count), strict=True):
            if not first:
                dist.recv(micro_x := torch.empty_like(micro_x), src=process.rank - 1)
            inputs.append(micro_x.requires_grad_(train and not first))
            with torch.set_grad_enabled(train):
                output = stage(micro_x)
                outputs.append(nn.functional.mse_loss(output, micro_target) if last else output)
            if not last:
                sends.append(dist.isend(output.detach(), dst=process.rank + 1))
        for stage_input, output in zip(inputs, outputs, strict=True) if train else ():
            if last:
                (output / count).backward()
            else:
                dist.recv(gradient := torch.empty_like(output), src=process.rank + 1)
                output.backward(gradient)
            if not first:
                assert stage_input.grad is not None
                sends.append(dist.isend(stage_input.grad, dst=process.rank - 1))
        for work in sends:
            assert work is not None
            work.wait()
        return torch.stack(outputs).mean().detach() if last else None

    return run


def parse_options() -> argparse.Namespace:
    parser = training_options("Pipeline-parallel training with a planted slow stage.", out="runs/pipeline", recorded=4)
    parser.add_argument("--schedule", default="1f1b", choices=[*CLASSES, "manual", "manual-forward-only"])
    parser.add_argument("--microbatches", type=int, default=8, help="a step")
    parser.add_argument("--slow-stage", type=int, default=-1, help="stage that computes longer")
    parser.add_argument("--slower-ms", type=float, help="by how much, in each of its parts; else by --sleep-ms")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    parser.add_argument("--sleep-ms", type=float, default=8.0, help="a stage's forward, and each half of its backward")
    return parser.parse_args()


if __name__ == "__main__":
    main()
