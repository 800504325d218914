"""Training with the Trainer of Hugging Face's transformers: a tiny GPT-2, data parallel (DDP), on random tokens.

    torchrun --standalone --nproc-per-node 2 probes/transformers_trainer.py --slow-rank 1 --delay-ms 20 --sleep-compute

`tracekit.integrations.TransformersCallback` records it: a step is a step of the optimizer, with all its micro-batches.
Nothing is downloaded: the model is made from its configuration. Expected findings, with strategy ddp:

* "2 backward passes a step", or as many as `--accumulate` says; gradients are reduced in the last of them only.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a step, in
  equal parts in the backward pass of each micro-batch.
* `--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import tracekit
from job import Job, add_slow_rank, job, planted_delay_s, require_package, training_options
from sleeping import sleep

require_package("transformers")

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments  # noqa: E402 (it may be missing)

WIDTH, LAYERS, HEADS, VOCABULARY, LENGTH, BATCH = 32, 2, 2, 64, 16, 4
SLEEP_S = 0.004


class Tokens(Dataset[dict[str, Tensor]]):
    def __init__(self, count: int) -> None:
        self.rows = torch.randint(VOCABULARY, (count, LENGTH))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def sleep_before(module: nn.Module, *, forward_s: float = 0.0, backward_s: float = 0.0) -> None:
    """Have the first input of `module` take `forward_s` seconds, and its gradient `backward_s`."""

    def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return sleep(inputs[0], forward_s=forward_s, backward_s=backward_s), *inputs[1:]

    module.register_forward_pre_hook(hook)


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
    )
    if options.sleep_compute:
        for layer in model.transformer.h:
            sleep_before(layer, forward_s=SLEEP_S, backward_s=2 * SLEEP_S)
    if delay_s := planted_delay_s(options, process):
        sleep_before(model.lm_head, backward_s=delay_s / options.accumulate)
    with tempfile.TemporaryDirectory() as unused:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=unused,
                use_cpu=process.device.type == "cpu",
                per_device_train_batch_size=BATCH,
                gradient_accumulation_steps=options.accumulate,
                max_steps=options.steps,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                logging_steps=1,
            ),
            train_dataset=Tokens(options.steps * options.accumulate * BATCH * process.world_size),
            callbacks=[tracekit.integrations.TransformersCallback(options.out, steps=options.recorded)],
        )
        trainer.train()


def parse_options() -> argparse.Namespace:
    parser = training_options(
        "Training with transformers, and a planted straggler.", out="runs/transformers_trainer", recorded=4
    )
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches a step")
    add_slow_rank(parser, "whose backward passes are delayed")
    parser.add_argument("--sleep-compute", action="store_true", help="layers sleep as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
