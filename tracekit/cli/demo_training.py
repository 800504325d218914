"""The training that `tracekit demo` records: a small transformer, data parallel over Gloo, with one slow rank.

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m tracekit.cli.demo_training --out DIR

It trains on random tokens. Rank 1 is the straggler: in each recorded step its backward pass sleeps. It sleeps for
twice as long as a step before took, so that the delay stands out from the noise of a busy machine, too.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import click

from tracekit.cli.inputs.echo import echo

SKIPPED, RECORDED = 5, 6
STEPS = SKIPPED + 1 + RECORDED + 1  # one for warm-up, and one whose start ends the last recorded step
SLOW_RANK = 1
PLANTED = "planted:"  # what the line on stdout begins with that says which delay was planted
# On a busy machine a step may take half as long again as the one before, on one rank and not on the other.
_DELAY_OF_STEP = 2.0
_LEAST_DELAY_S = 0.04
VOCABULARY, WIDTH, LAYERS, TOKENS, BATCH = 256, 128, 4, 32, 8


@click.command()
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of the run.")
def main(out: str) -> None:
    """Train a few steps, recorded by tracekit.probe."""
    # Kineto logs each recording on stderr. It reads its level once, when torch is imported.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    train(out, dist.get_rank() == SLOW_RANK, torch)
    dist.destroy_process_group()


def train(out: str, slow: bool, torch: Any) -> None:
    """Train, recorded below `out`. A slow rank sleeps in every step after the skipped ones."""
    from tracekit.capture.probe import probe

    delay_s = 0.0

    class SlowBackward(torch.autograd.Function):
        """The identity function, with a backward pass that takes `delay_s` longer."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            time.sleep(delay_s)
            return gradient

    class Transformer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
            self.layers = torch.nn.ModuleList(
                torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
                for _ in range(LAYERS)
            )
            self.head = torch.nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens: Any) -> Any:
            x = self.embedding(tokens)
            for number, layer in enumerate(self.layers):
                x = layer(SlowBackward.apply(x) if number == LAYERS // 2 and slow else x)
            return self.head(x)

    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Transformer(), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @probe(path=out, skip=SKIPPED, steps=RECORDED, quiet=True)
    def train_step() -> None:
        tokens = torch.randint(VOCABULARY, (BATCH, TOKENS + 1))
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    took_s = []
    for _ in range(SKIPPED):
        started_s = time.perf_counter()
        train_step()
        took_s.append(time.perf_counter() - started_s)
    if slow:
        delay_s = max(_DELAY_OF_STEP * statistics.median(took_s[1:]), _LEAST_DELAY_S)  # the first step also allocates
        echo(f"{PLANTED} rank {SLOW_RANK} sleeps {1000 * delay_s:.0f} ms a step in its backward pass")
    for _ in range(SKIPPED, STEPS):
        train_step()


if __name__ == "__main__":
    main()
