"""Ranks of the integration tests, under torchrun. Writes `<out>/facts-<rank>.json`.

Each framework trains the same small model with two micro-batches in each step, and records into its folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import torch.distributed as dist
from accelerate import Accelerator
from lightning.pytorch import LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

import tracekit
from tests.integration.marked_training import WIDTH, MarkedSGD, Network

BATCH, MICRO_BATCHES, STEPS = 4, 2, 8
WINDOW = {"skip": 3, "warmup": 1, "steps": 3}


class Items(Dataset[dict[str, Tensor]]):
    """Items for `STEPS` steps of two ranks."""

    def __len__(self) -> int:
        return 2 * STEPS * MICRO_BATCHES * BATCH

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": torch.full((WIDTH,), index / len(self))}


def with_accelerate(out: Path) -> int:
    """Train, and return the number of optimizer steps; so do the other two."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICRO_BATCHES)
    network = Network()
    model, optimizer, loader = accelerator.prepare(
        network, MarkedSGD(network.parameters(), lr=0.1), DataLoader(Items(), BATCH)
    )
    steps = 0
    with tracekit.integrations.AccelerateProbe(accelerator, out, **WINDOW) as probe:
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            steps += accelerator.sync_gradients
            probe.step()
    return steps


def with_transformers(out: Path) -> int:
    arguments = TrainingArguments(
        output_dir=str(out / "unused"),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=MICRO_BATCHES,
        num_train_epochs=1,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    callback = tracekit.integrations.TransformersCallback(out, **WINDOW)
    network = Network()
    optimizer = MarkedSGD(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    trainer = Trainer(
        model=network,
        args=arguments,
        train_dataset=Items(),
        callbacks=[callback],
        optimizers=(optimizer, schedule),
    )
    trainer.train()
    return trainer.state.global_step


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def training_step(self, batch: dict[str, Tensor], _index: int) -> Tensor:
        return self.network(**batch)["loss"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return MarkedSGD(self.parameters(), lr=0.1)


def with_lightning(out: Path) -> int:
    trainer = LightningTrainer(
        accelerator="cpu",
        devices=dist.get_world_size(),
        strategy="ddp",
        max_epochs=1,
        accumulate_grad_batches=MICRO_BATCHES,
        gradient_clip_val=1.0,
        callbacks=[tracekit.integrations.LightningCallback(out, **WINDOW)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=out / "unused",
    )
    trainer.fit(Module(), DataLoader(Items(), BATCH))
    return trainer.global_step


def main() -> None:
    out = Path(sys.argv[1])
    facts: dict[str, Any] = {
        "accelerate": with_accelerate(out / "accelerate"),
        "transformers": with_transformers(out / "transformers"),
        "lightning": with_lightning(out / "lightning"),
    }
    (out / f"facts-{dist.get_rank()}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
