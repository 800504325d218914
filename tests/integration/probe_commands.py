"""The command of each probe, and what must be found in its run (probe_answers.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.probe_answers import (
    SETTINGS_BYTES,
    STEPS,
    Result,
    averaged_in_one_buffer,
    buckets,
    configured,
    half_the_bytes,
    held_up_by_loading,
    hot_expert,
    layers,
    moves_the_sequence,
    no_units,
    one_process,
    one_rank_at_a_time,
    passes_keys_around,
    saved_by_one_rank,
    sharded_modules,
    slow_and_compiled,
    slow_backward,
    slow_backward_of_twelve_layers,
    slow_compute,
    slow_forward_stage,
    slow_micro_batches,
    slow_stage,
    stages,
    waits_for_data,
)

BOTH = (0, 1)
WORLD = "world"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A command, and what must be found.

    groups: parallelism and ranks of each that is used. units: what reads them off a result, and `expected`.
    collectives: how many each rank records, all joined to their events; None if that is the library's affair. noted: a
    part of each note about the capture. planted: checks the known answer, given the result and the folder of the run.
    """

    name: str
    arguments: tuple[str, ...] = ()
    under_torchrun: bool = True
    strategies: tuple[str, ...]
    groups: tuple[tuple[str, Any], ...]
    units: Callable[[Result], Any]
    expected: Any
    collectives: int | None
    blocks: bool = True  # every communication makes its rank wait, so that nothing can overlap
    noted: tuple[str, ...] = ()
    planted: Callable[[Result, Path], None]


BLOCK_BYTES = 4 * (512 * 512 + 512)  # of float32
HEAD_BYTES = 4 * (10 * 512 + 10)
GPT2_BYTES = 112_128
ZERO_BYTES = 4 * (4 * (2 * 32 + 4 * 32 * 32 + 4 * 32 + 4 * 32 * 32 + 32) + 10 * 32 + 10)  # four blocks and the head
PHASES_BYTES = 4 * 4 * (2 * 64 + 4 * 64 * 64 + 4 * 64 + 4 * 64 * 64 + 64)  # four blocks: norm, up, down

COMMANDS = [
    Probe(
        name="ddp",
        arguments=("--slow-rank", "1", "--delay-ms", "20"),
        strategies=("ddp",),
        groups=(("dp", WORLD),),
        units=buckets,
        expected=[(0, 10, HEAD_BYTES + 4 * BLOCK_BYTES), (1, 8, 4 * BLOCK_BYTES), (2, 8, 4 * BLOCK_BYTES)],
        collectives=3 * 6,
        blocks=False,
        planted=slow_backward_of_twelve_layers,
    ),
    Probe(
        name="ddp_settings",
        arguments=("--comm-hook", "fp16", "--sleep-compute"),
        strategies=("ddp",),
        groups=(("dp", WORLD),),
        units=buckets,
        expected=[(0, 16, SETTINGS_BYTES)],
        collectives=STEPS,
        blocks=False,
        planted=half_the_bytes,
    ),
    *(
        Probe(
            name=name,
            arguments=("--accumulate", "2", "--slow-rank", "1", "--delay-ms", "40", "--sleep-compute"),
            strategies=("ddp",),
            groups=(("dp", WORLD),),
            units=buckets,
            expected=[(0, parameters, size_bytes)],
            collectives=None,
            blocks=False,
            planted=partial(slow_micro_batches, rank=1, delay_ms=40, micro_batches=2),
        )
        for name, parameters, size_bytes in (
            ("accelerate_loop", 16, SETTINGS_BYTES),
            ("lightning_trainer", 16, SETTINGS_BYTES),
            ("transformers_trainer", 28, GPT2_BYTES),
        )
    ),
    Probe(
        name="manual_data_parallel",
        arguments=("--flat", "--sleep-compute"),
        strategies=("manual_dp",),
        groups=(("dp", WORLD),),
        units=no_units,
        expected=[],
        collectives=STEPS,
        planted=averaged_in_one_buffer,
    ),
    Probe(
        name="manual_data_parallel",
        arguments=("--every", "2", "--slow-rank", "1", "--delay-ms", "20", "--sleep-compute"),
        strategies=("local_sgd",),
        groups=(("dp", WORLD),),
        units=no_units,
        expected=[],
        collectives=2 * 26,  # parameters, in two of the four steps
        planted=partial(slow_compute, rank=1, delay_ms=20),
    ),
    Probe(
        name="data_parallel",
        under_torchrun=False,
        strategies=("dp",),
        groups=(),
        units=no_units,
        expected=[],
        collectives=0,
        noted=("DataParallel of Sequential has no devices: it only calls the module",),
        planted=one_process,
    ),
    Probe(
        name="fsdp",
        arguments=("--fsdp", "2", "--prefetch", "2", "--sleep-compute", "--slow-rank", "1", "--delay-ms", "20"),
        strategies=("fsdp2",),
        groups=(("dp", WORLD),),
        units=sharded_modules,
        expected={"", *(f"blocks.{number}" for number in range(6))},
        collectives=6 * (7 + 6 + 7),  # gathers forward, backward (the outermost stays gathered), and reductions
        planted=partial(slow_backward, rank=1, delay_ms=20),
    ),
    Probe(
        name="fsdp",
        arguments=("--fsdp", "1", "--sharding", "grad-op", "--precision", "bf16", "--sleep-compute"),
        strategies=("fsdp1",),
        groups=(("dp", WORLD),),
        units=sharded_modules,
        expected={"", *(f"blocks.{number}" for number in range(6))},
        collectives=6 * (7 + 7),  # gathers forward, and reductions
        planted=partial(
            configured, component="fsdp1", sharding_strategy="SHARD_GRAD_OP", param_dtype="bfloat16", cpu_offload=False
        ),
    ),
    Probe(
        name="compiled",
        arguments=("--slow-rank", "1", "--delay-ms", "20"),
        strategies=("ddp",),
        groups=(("dp", WORLD),),
        units=lambda result: sum(count for _, count, _ in buckets(result)),
        expected=2 * (2 * 4 + 1),  # weights and biases of four blocks and the head
        collectives=None,
        blocks=False,
        planted=partial(slow_and_compiled, rank=1, delay_ms=20),
    ),
    Probe(
        name="compiled",
        arguments=("--whole-step", "--slow-rank", "1", "--delay-ms", "40"),
        strategies=("ddp",),
        groups=(("dp", WORLD),),
        units=lambda result: sum(count for _, count, _ in buckets(result)),
        expected=2 * (2 * 4 + 1),
        collectives=None,
        blocks=False,
        planted=partial(slow_backward, rank=1, delay_ms=40),
    ),
    Probe(
        name="zero",
        arguments=("--stage", "3", "--sleep-compute", "--slow-rank", "1", "--delay-ms", "20"),
        strategies=("zero3",),
        groups=(("dp", WORLD),),
        units=sharded_modules,
        expected={"head", *(f"blocks.{number}.{part}" for number in range(4) for part in ("norm", "up", "down"))},
        collectives=None,
        blocks=False,
        planted=partial(slow_backward, rank=1, delay_ms=20),
    ),
    Probe(
        name="zero",
        arguments=("--torch", "--sleep-compute", "--slow-rank", "1", "--delay-ms", "20"),
        strategies=("ddp", "zero1"),
        groups=(("dp", WORLD),),
        units=buckets,
        expected=[(0, 26, ZERO_BYTES)],
        collectives=None,
        blocks=False,
        planted=partial(slow_backward, rank=1, delay_ms=20),
    ),
    Probe(
        name="tensor",
        arguments=("--manual", "--sequence-parallel", "--slow-rank", "1", "--delay-ms", "20"),
        strategies=("sp", "tp"),
        groups=(("tp", WORLD),),
        units=layers,
        expected={
            (rank, module, phase, kind): count * STEPS
            for rank in BOTH
            for module, phase, kind, count in (
                *((f"blocks.{n}.up", "forward", "all_gather", 1) for n in range(2)),
                *((f"blocks.{n}.up", "backward", "reduce_scatter", 1) for n in range(2)),
                *((f"blocks.{n}.down", "forward", "reduce_scatter", 1) for n in range(2)),
                *((f"blocks.{n}.down", "backward", "all_gather", 1) for n in range(2)),
                ("head", "forward", "all_gather", 2),  # the sequence, then the columns
                ("head", "backward", "reduce_scatter", 1),
            )
        },
        collectives=None,
        planted=partial(slow_compute, rank=1, delay_ms=20),
    ),
    Probe(
        name="tensor",
        arguments=("--slow-rank", "1", "--delay-ms", "20"),
        strategies=("tp",),
        groups=(("tp", WORLD),),
        units=layers,
        expected={
            (rank, module, phase, kind): STEPS
            for rank in BOTH
            for module, phase, kind in (
                ("blocks.0.down", "forward", "all_reduce"),
                ("blocks.1.down", "forward", "all_reduce"),
                ("blocks.0.up", "backward", "all_reduce"),
                ("blocks.1.up", "backward", "all_reduce"),
                ("head", "forward", "all_gather"),
                ("head", "backward", "all_reduce"),
            )
        },
        collectives=6 * STEPS,
        planted=partial(slow_compute, rank=1, delay_ms=20),
    ),
    Probe(
        name="expert",
        arguments=("--hot-expert", "1"),
        strategies=("ep",),
        groups=(("ep", WORLD),),
        units=layers,
        # the counts, the tokens there and back; the gradients of the tokens
        expected={
            (rank, "moe", phase, "all_to_all"): count * STEPS
            for rank in BOTH
            for phase, count in (("forward", 3), ("backward", 2))
        },
        collectives=(3 + 2 + 4) * STEPS,
        planted=hot_expert,
    ),
    Probe(
        name="context",
        arguments=("--method", "ulysses"),
        strategies=("cp",),
        groups=(("cp", WORLD),),
        units=layers,
        expected={
            (rank, "attention", phase, "all_to_all"): 2 * STEPS for rank in BOTH for phase in ("forward", "backward")
        },
        collectives=(2 + 2 + 6) * STEPS,
        planted=moves_the_sequence,
    ),
    Probe(
        name="context",
        arguments=("--method", "gather"),
        strategies=("cp",),
        groups=(("cp", WORLD),),
        units=layers,
        expected={
            (rank, "attention", phase, kind): STEPS
            for rank in BOTH
            for phase, kind in (("forward", "all_gather"), ("backward", "reduce_scatter"))
        },
        collectives=(1 + 1 + 6) * STEPS,
        planted=moves_the_sequence,
    ),
    Probe(
        name="ring_attention",
        arguments=("--slow-rank", "1", "--delay-ms", "20"),
        strategies=("cp",),
        groups=(("cp", WORLD),),
        units=layers,
        expected={
            (rank, "attention", phase, kind): STEPS
            for rank in BOTH
            for phase in ("forward", "backward")
            for kind in ("send", "recv")
        },
        collectives=6 * STEPS,
        planted=partial(passes_keys_around, rank=1, delay_ms=20),
    ),
    Probe(
        name="pipeline",
        arguments=("--schedule", "1f1b", "--slow-stage", "1", "--sleep-compute"),
        strategies=("pp",),
        groups=(("pp", WORLD),),
        units=stages,
        expected=("1f1b", 8, {(stage, kind): 8 * STEPS for stage in BOTH for kind in "FB"}),
        collectives=0,
        blocks=False,
        planted=slow_stage,
    ),
    Probe(
        name="pipeline",
        arguments=("--schedule", "manual-forward-only", "--sleep-compute", "--slow-stage", "1"),
        strategies=("pp",),
        groups=(("pp", WORLD),),
        units=stages,
        expected=("manual", 8, {(stage, "F"): 8 * STEPS for stage in BOTH}),
        collectives=0,
        blocks=False,
        planted=slow_forward_stage,
    ),
    Probe(
        name="model_parallel",
        arguments=("--sleep-compute",),
        strategies=("pp",),
        groups=(("pp", WORLD),),
        units=stages,
        expected=("manual", 1, {(stage, kind): STEPS for stage in BOTH for kind in "FB"}),
        collectives=0,
        planted=one_rank_at_a_time,
    ),
    Probe(
        name="straggler",
        arguments=("--cause", "data", "--rank", "1", "--delay-ms", "60", "--recorded", str(STEPS), "--sleep-compute"),
        strategies=("ddp",),
        groups=(("dp", WORLD),),
        units=buckets,
        expected=[(0, 7, 4 * (4 * 256 * 256 + 3 * 256)), (1, 5, 4 * (2 * 256 * 256 + 3 * 256))],
        collectives=2 * STEPS,
        blocks=False,
        planted=held_up_by_loading,
    ),
    Probe(
        name="phases",
        arguments=("--slow-loader-ms", "60", "--amp", "float16", "--overflow-step", "5"),
        strategies=("ddp",),
        groups=(("dp", WORLD),),
        units=buckets,
        expected=[(0, 4 * 6, PHASES_BYTES)],
        collectives=STEPS,
        blocks=False,
        planted=waits_for_data,
    ),
    Probe(
        name="checkpointing",
        arguments=("--slow-disk-ms", "78", "--evaluate-every", "1", "--recorded", str(STEPS), "--sleep-compute"),
        strategies=("ddp",),
        groups=(("dp", WORLD),),
        units=buckets,
        expected=[(0, 7, 4 * (4 * 256 * 256 + 3 * 256)), (1, 1, 4 * 256)],
        collectives=2 * STEPS,
        blocks=False,
        planted=saved_by_one_rank,
    ),
]
