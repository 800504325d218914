"""The two ranks of the pipeline tests, under torchrun. Each scenario records into its folder.

Writes `<out>/facts-<rank>.json`: the losses of each scenario, without and with a recording.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from tests.old_torch import GLOO_RUNS_SCHEDULES, PIPELINES_EVALUATE, V_SCHEDULES
from tracekit.capture.probe import probe

WIDTH, MICROBATCHES, MICROBATCH = 16, 4, 2
STEPS, SKIP, RECORDED = 4, 1, 2
SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved1f1b": "Interleaved1F1B",
    "loopedbfs": "LoopedBFS",
    "interleavedzerobubble": "InterleavedZeroBubble",
    **V_SCHEDULES,
}
IN_USE = SCHEDULES if GLOO_RUNS_SCHEDULES else ("gpipe",)
Step = Callable[[Tensor, Tensor], float | None]


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        time.sleep(0.003)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        time.sleep(0.003)
        return gradient


class Layer(nn.Module):
    def __init__(self, number: int, sleeps: bool = False) -> None:
        super().__init__()
        torch.manual_seed(number)
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.sleeps = sleeps

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(_Sleep.apply(x) if self.sleeps else x))


def train(out: Path | None, make: Callable[[], tuple[list[nn.Module], Step]]) -> list[float | None]:
    """Return the losses of a run, recorded below `out` unless that is None."""
    modules, run = make()
    optimizer = torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.1)
    batches = torch.Generator().manual_seed(0)

    def step() -> float | None:
        x, target = (torch.randn(MICROBATCHES * MICROBATCH, WIDTH, generator=batches) for _ in range(2))
        loss = run(x, target)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    recorder = probe(path=out, skip=SKIP, warmup=1, steps=RECORDED) if out else None
    recorded = recorder(step) if recorder else step
    losses = [recorded() for _ in range(STEPS)]
    if recorder:
        recorder.finish()
    return losses


def scheduled(slug: str, group: dist.ProcessGroup | None = None, evaluate: bool = False) -> Any:
    """Return a schedule of torch.distributed.pipelining, with two stages on each rank if it needs several."""
    rank = dist.get_rank()
    numbers = [rank] if slug in {"gpipe", "1f1b"} else [rank, 3 - rank if slug in {"zbv", "dualpipev"} else 2 + rank]
    count = 2 * len(numbers)

    def make() -> tuple[list[nn.Module], Step]:
        modules: list[nn.Module] = [Layer(number) for number in numbers]
        stages = [
            PipelineStage(module, number, count, torch.device("cpu"), group=group)
            for module, number in zip(modules, numbers, strict=True)
        ]
        schedule = get_schedule_class(SCHEDULES[slug])(
            stages if len(stages) > 1 else stages[0], MICROBATCHES, loss_fn=nn.functional.mse_loss
        )

        def run(x: Tensor, target: Tensor) -> float | None:
            inputs = [x] if 0 in numbers else []
            if evaluate:
                with torch.no_grad():
                    schedule.eval(*inputs, **({"target": target} if count - 1 in numbers else {}))
                return None
            losses: list[Tensor] = []
            schedule.step(*inputs, **({"target": target, "losses": losses} if count - 1 in numbers else {}))
            return torch.stack(losses).mean().item() if losses else None

        return modules, run

    return make


def fill_and_drain(microbatches: int = MICROBATCHES, forward_only: bool = False, sleeps: bool = False) -> Any:
    """Return a pipeline with blocking send and recv; with one microbatch it is layer-wise model parallelism."""
    rank = dist.get_rank()

    def make() -> tuple[list[nn.Module], Step]:
        stage = Layer(rank, sleeps)

        def run(x: Tensor, target: Tensor) -> float | None:
            pairs = []
            with torch.set_grad_enabled(not forward_only):
                for part, expected in zip(x.chunk(microbatches), target.chunk(microbatches), strict=True):
                    if rank == 1:
                        dist.recv(part, src=0)
                        part.requires_grad_(not forward_only)
                    output = stage(part)
                    if rank == 0:
                        dist.send(output.detach(), dst=1)
                    pairs.append((part, nn.functional.mse_loss(output, expected) if rank == 1 else output))
            for part, output in [] if forward_only else pairs:
                if rank == 1:
                    output.backward()
                    dist.send(part.grad, dst=0)
                else:
                    gradient = torch.empty_like(output)
                    dist.recv(gradient, src=1)
                    output.backward(gradient)
            return torch.stack([output for _, output in pairs]).mean().item() if rank == 1 else None

        return [stage], run

    return make


def one_forward_one_backward() -> Any:
    """Return a pipeline that exchanges activations and gradients in one call; a stage has two modules."""
    rank = dist.get_rank()

    def make() -> tuple[list[nn.Module], Step]:
        parts = [Layer(2 * rank), Layer(2 * rank + 1)]

        def exchange(sent: Tensor | None, like: Tensor | None) -> Tensor | None:
            received = None if like is None else torch.empty_like(like)
            operations = [] if sent is None else [dist.P2POp(dist.isend, sent, 1 - rank)]
            operations += [] if received is None else [dist.P2POp(dist.irecv, received, 1 - rank)]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            return received

        def first(x: Tensor, target: Tensor) -> float | None:
            outputs = []
            for part in x.chunk(MICROBATCHES):
                output = parts[1](parts[0](part))
                gradient = exchange(output.detach(), output)  # the second stage returns the gradient at once
                output.backward(gradient)
                outputs.append(output)
            return None

        def second(x: Tensor, target: Tensor) -> float | None:
            losses, gradient = [], None
            for expected in target.chunk(MICROBATCHES):
                received = exchange(gradient, expected)
                assert received is not None
                received.requires_grad_()
                loss = nn.functional.mse_loss(parts[1](parts[0](received)), expected)
                loss.backward()
                gradient = received.grad
                losses.append(loss)
            exchange(gradient, None)
            return torch.stack(losses).mean().item()

        return list(parts), second if rank == 1 else first

    return make


class RingLayer(nn.Module):
    """Passes all parts of a sequence around the ring of ranks, as in context parallelism."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        part, result = x.detach(), self.linear(x)
        for _ in range(dist.get_world_size() - 1):
            received, peer = torch.empty_like(part), 1 - dist.get_rank()
            operations = [dist.P2POp(dist.isend, part, peer), dist.P2POp(dist.irecv, received, peer)]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            part = received
            result = result + self.linear(part)
        return result


def ring() -> tuple[list[nn.Module], Step]:
    torch.manual_seed(0)
    layer = RingLayer()

    def run(x: Tensor, target: Tensor) -> float | None:
        loss = nn.functional.mse_loss(layer(x), target)
        loss.backward()
        return loss.item()

    return [layer], run


def every_way_to_send(pair: dist.ProcessGroup) -> Any:
    """Return a step with messages in two groups, with a tag, of an object, and from any source: no pipeline."""

    def make() -> tuple[list[nn.Module], Step]:
        def run(x: Tensor, target: Tensor) -> float | None:
            if dist.get_rank() == 0:
                dist.send(x, dst=1, group=pair, tag=7)
                dist.send(x[0], dst=1)
                dist.send_object_list([{"step": 1}], dst=1, group=pair)
                dist.send(x[:2], dst=1)
            else:
                dist.recv(torch.empty_like(x), src=0, group=pair, tag=7)
                dist.recv(torch.empty_like(x[0]), src=0)
                dist.recv_object_list([None], src=0, group=pair)
                dist.recv(torch.empty_like(x[:2]))
            return None

        return [nn.Linear(1, 1)], run

    return make


def main() -> None:
    out = Path(sys.argv[1])
    dist.init_process_group("gloo")
    unnamed = init_device_mesh("cpu", (2,)).get_group()
    pair = dist.new_group([0, 1], group_desc="pair")
    scenarios = {
        **{slug: scheduled(slug) for slug in IN_USE},
        **({"unnamed_mesh": scheduled("1f1b", unnamed)} if GLOO_RUNS_SCHEDULES else {}),
        **({"evaluation": scheduled("interleaved1f1b", pair, evaluate=True)} if PIPELINES_EVALUATE else {}),
        "manual": fill_and_drain(sleeps=True),
        "manual_1f1b": one_forward_one_backward(),
        "manual_forward_only": fill_and_drain(forward_only=True),
        "model_parallel": fill_and_drain(microbatches=1),
        "ring": ring,
        "messages": every_way_to_send(pair),
    }
    facts = {
        name: {"plain": train(None, make), "recorded": train(out / name, make)} for name, make in scenarios.items()
    }
    (out / f"facts-{dist.get_rank()}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
