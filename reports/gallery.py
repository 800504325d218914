"""The runs of the gallery: which probe, what is planted, and where its report has the number.

A number that is planted stands here once, and the options have it from there. One that was found is read from the JSON.
"""

from __future__ import annotations

from entry import Entry, Planted, column, evidence, late_rank, reduced_share, saving_ms

# Ten recorded steps: with fewer a verdict may not be sure on a machine that does other things, too.
SLOW_RANK = "--slow-rank 1 --delay-ms {value:g} --recorded 10 --steps 15"
SLEEPING = f"{SLOW_RANK} --sleep-compute"

GALLERY = (
    Entry(
        folder="ddp",
        trains="data parallel (DDP)",
        ranks=2,
        options=SLEEPING,
        planted=late_rank(1, 20),
    ),
    Entry(
        folder="manual_data_parallel",
        trains="an all-reduce per parameter by hand",
        ranks=2,
        options="--sleep-compute",
        planted=Planted(
            what="a gradient is reduced after the backward pass, which hides none",
            value=26,
            unit="all-reduces a step",
            decimals=0,
            found=evidence("all_reduces_per_step", in_backward=0),
        ),
    ),
    Entry(
        folder="ddp_settings",
        trains="DDP with a communication hook",
        ranks=2,
        options="--comm-hook fp16 --sleep-compute",
        planted=Planted(
            what="gradients are reduced as float16",
            value=50,
            unit="% of their bytes",
            found=reduced_share,
        ),
    ),
    Entry(
        folder="accelerate_loop",
        trains="accelerate, 2 micro-batches a step",
        ranks=2,
        options=SLEEPING,
        planted=late_rank(1, 20),
        needs="accelerate",
    ),
    Entry(
        folder="lightning_trainer",
        trains="Lightning's Trainer, 2 micro-batches a step",
        ranks=2,
        options=SLEEPING,
        planted=late_rank(1, 20),
        needs="lightning",
    ),
    Entry(
        folder="transformers_trainer",
        trains="the Trainer of transformers, 2 micro-batches a step",
        ranks=2,
        options=SLEEPING,
        planted=late_rank(1, 20),
        needs="transformers",
    ),
    Entry(
        folder="data_parallel",
        trains="`nn.DataParallel` without a GPU",
        ranks=0,
        options="",
        planted=Planted(
            what="it only calls the module: nothing is communicated",
            value=0,
            unit="ms",
            found=column("ranks", "comm_ns", "communication of the rank", scale=1e-6),
        ),
    ),
    Entry(
        folder="fsdp",
        trains="FSDP2",
        ranks=2,
        options=f"--fsdp 2 {SLEEPING}",
        planted=late_rank(1, 20),
    ),
    Entry(
        folder="compiled",
        trains="a compiled model under DDP",
        ranks=2,
        options=SLOW_RANK,
        planted=late_rank(1, 20),
    ),
    Entry(
        folder="zero",
        trains="DeepSpeed ZeRO 3",
        ranks=2,
        options=f"--stage 3 {SLEEPING}",
        planted=late_rank(1, 20),
        needs="deepspeed",
    ),
    Entry(
        folder="tensor",
        trains="tensor parallel (DTensor)",
        ranks=2,
        options=SLEEPING,
        planted=late_rank(1, 20),
    ),
    Entry(
        folder="expert",
        trains="expert parallel",
        ranks=2,
        options="--hot-expert 1 --sleep-compute",
        planted=Planted(
            what="rank 1's expert gets more tokens than the other",
            value=3,
            unit="times as many",
            decimals=2,
            found=evidence("ratio", rank=1, cause="expert_load"),
        ),
    ),
    Entry(
        folder="context",
        trains="context parallel (Ulysses)",
        ranks=2,
        options=f"--method ulysses {SLEEPING}",
        planted=late_rank(1, 20),
    ),
    Entry(
        folder="ring_attention",
        trains="context parallel (ring attention)",
        ranks=2,
        options=SLEEPING,
        planted=late_rank(1, 20),
    ),
    Entry(
        folder="pipeline",
        trains="pipeline parallel (1F1B)",
        ranks=4,
        options="--schedule 1f1b --slow-stage 1 --sleep-compute",
        planted=Planted(
            what="stage 1 takes longer than the others",
            value=2,
            unit="times as long",
            decimals=2,
            found=evidence("factor", stage=1, cause="imbalance"),
            within=0.1,
        ),
    ),
    Entry(
        folder="model_parallel",
        trains="layers split over ranks",
        ranks=3,
        options="--sleep-compute",
        planted=Planted(
            what="two of the three ranks wait at any time: bubbles",
            value=66.7,
            unit="% of the time",
            found=evidence("bubble_ratio", 100, cause="bubble"),
            within=0.05,
        ),
    ),
    Entry(
        folder="hybrid",
        trains="FSDP2 x pipeline x tensor parallel",
        ranks=8,
        options="--slow-rank 5 --delay-ms 10 --recorded 6 --steps 11 --sleep-compute",
        # 10 ms for each of two blocks and four micro-batches forward, and twice that backward. The step is longer by
        # less: the other ranks, eight on two cores, work meanwhile.
        planted=Planted(
            what="rank 5 computes longer, in each step",
            value=10 * 2 * 4 * 3,
            unit="ms",
            found=evidence("excess_ns", 1e-6, rank=5, cause="compute"),
            within=0.15,
        ),
    ),
    Entry(
        folder="phases",
        trains="DDP with a slow data loader",
        ranks=2,
        options="--slow-loader-ms {value:g} --sleep-compute",
        planted=Planted(
            what="loading a batch takes longer",
            value=30,
            unit="ms",
            found=saving_ms(cause="data"),
            within=0.15,
        ),
    ),
    Entry(
        folder="checkpointing",
        trains="DDP with a checkpoint after each step",
        ranks=2,
        options="--slow-disk-ms {value:g} --sleep-compute",
        planted=Planted(
            what="rank 0's disk takes longer to write a checkpoint",
            value=78,
            unit="ms",
            found=saving_ms(rank=0, cause="checkpoint"),
            within=0.1,
        ),
    ),
    Entry(
        folder="straggler",
        trains="DDP, one rank late for one of four causes",
        ranks=4,
        options="--cause data --rank 2 --delay-ms {value:g} --sleep-compute",
        planted=late_rank(2, 20, cause="data"),
    ),
    Entry(
        folder="slow_trainer",
        probe="parameter_server",
        trains="asynchronous trainers of a parameter server (RPC)",
        ranks=4,
        options="--slow-trainer 2 --delay-ms {value:g} --steps 15",
        environment=(("TRACEKIT_STEPS", "10"),),
        planted=Planted(
            what="a step of trainer 2 computes longer, for which nobody waits",
            value=100,
            unit="ms",
            found=evidence("longer_parts_ns.compute", 1e-6, rank=2, cause="slow_compute"),
            within=0.1,
        ),
    ),
    Entry(
        folder="slow_server",
        probe="parameter_server",
        trains="asynchronous trainers of a parameter server (RPC)",
        ranks=3,
        options="--slow-server-ms {value:g} --steps 15",
        environment=(("TRACEKIT_STEPS", "10"),),
        planted=Planted(
            what="the server takes longer to answer each pull",
            value=20,
            unit="ms",
            found=evidence("service_ns", 1e-6, cause="rpc", function="pull"),
            within=0.1,
        ),
    ),
    Entry(
        folder="server_by_messages",
        trains="a parameter server and its workers by send and receive",
        ranks=3,
        options="--server-ms {value:g} --steps 20",
        environment=(("TRACEKIT_STEPS", "8"),),
        planted=Planted(
            what="the server takes that long for each gradient",
            value=30,
            unit="ms",
            found=evidence("work_ns", 1e-6, rank=0, cause="servers"),
            within=0.1,
        ),
    ),
    Entry(
        folder="elastic",
        trains="DDP that torchrun restarts, from a checkpoint of every fifth step",
        ranks=2,
        options="--kill-step 14 --checkpoint-every 5 --sleep-compute",
        torchrun="--max-restarts 2",
        environment=(("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),),
        planted=Planted(
            what="rank 1 is killed as it begins step 14; step 10 was saved",
            value=14 - 10,
            unit="repeated steps",
            decimals=0,
            found=column("attempts", "repeated_steps", "what attempt 1 repeats", attempt=1),
        ),
    ),
)
