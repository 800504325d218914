"""Training with Lightning's Trainer: data parallel (DDP), with gradients of several batches in a step.

    torchrun --standalone --nproc-per-node 2 probes/lightning_trainer.py --slow-rank 1 --delay-ms 20 --sleep-compute

`tracekit.integrations.LightningCallback` records it: a step is a step of the optimizer, with all its micro-batches. The
file is not called lightning.py: Python would import it instead of the package. Expected findings, with strategy ddp:

* "2 backward passes a step", or as many as `--accumulate` says; gradients are reduced in the last of them only.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a step, in
  equal parts in the backward pass of each micro-batch.
* `--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
"""

from __future__ import annotations

import argparse
import logging
import warnings

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tracekit
from blocks import Network
from job import Job, add_slow_rank, job, planted_delay_s, require_package, training_options

require_package("lightning")

from lightning.pytorch import LightningModule, Trainer  # noqa: E402 (it may be missing)

WIDTH, LAYERS, CLASSES, BATCH = 64, 2, 10, 16
SLEEP_S = 0.002


class Module(LightningModule):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def training_step(self, batch: tuple[Tensor, Tensor], _number: int) -> Tensor:
        x, target = batch
        return nn.functional.cross_entropy(self.network(x), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    delay_s = planted_delay_s(options, process) / options.accumulate
    network = Network(WIDTH, LAYERS, CLASSES, SLEEP_S if options.sleep_compute else 0.0, delay_s)
    samples = options.steps * options.accumulate * BATCH * process.world_size
    data = TensorDataset(torch.randn(samples, WIDTH), torch.randint(CLASSES, (samples,)))
    quiet_about_small_runs()
    trainer = Trainer(
        accelerator="cpu" if process.device.type == "cpu" else "gpu",
        devices=process.world_size,
        strategy="ddp",
        max_epochs=1,
        accumulate_grad_batches=options.accumulate,
        callbacks=[tracekit.integrations.LightningCallback(options.out, steps=options.recorded)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(network), DataLoader(data, BATCH))
    if process.rank == 0:
        print(f"{trainer.global_step} steps")


def quiet_about_small_runs() -> None:
    """Keep Lightning from advising what would only matter for a longer run."""
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


def parse_options() -> argparse.Namespace:
    parser = training_options(
        "Training with Lightning, and a planted straggler.", out="runs/lightning_trainer", recorded=4
    )
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches a step")
    add_slow_rank(parser, "whose backward passes are delayed")
    parser.add_argument("--sleep-compute", action="store_true", help="layers sleep as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
