"""Jobs drawn at random: a seed chooses sizes, jitter, delays, the culprit and the clocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from benchmarks.gpu_jobs.clocks import Clocks
from benchmarks.gpu_jobs.spec import Cause, Defect, Family, JobSpec

FAMILIES: tuple[Family, ...] = get_args(Family)

CAUSES: Mapping[Family, Sequence[Cause]] = {
    "ddp": ("compute", "more_work", "host", "data", "slow_host"),
    "fsdp": ("compute", "more_work", "host", "data", "slow_host"),
    "tensor": ("compute", "more_work", "host", "data", "link", "slow_host"),
    "pipeline": ("more_work", "host", "data", "uneven_stage", "slow_edge"),
    "expert": ("compute", "more_work", "host", "data", "hot_expert", "slow_host"),
    "hybrid": ("compute", "more_work", "host", "data", "link", "uneven_stage", "slow_edge"),
}
"""The defects that make sense in a family. A pipeline without dp and tp has one rank a stage: slow is uneven there."""

DELAY_SHARES = (0.05, 0.30)  # of a step
MOST_JITTER = 0.05


def spec_of(family: Family, seed: int, *, cause: Cause | None = None) -> JobSpec:
    """Return a job of a family, healthy or with a defect of the given cause. Equal arguments give equal jobs.

    A delay is 5 to 30 % of the step. Without a cause the same seed gives the same job except for the defect, with two
    exceptions: a slow loader needs a host that does not run ahead, and a slow machine needs another one beside it.
    """
    rng = random.Random(f"{family} {seed}")
    spec = JobSpec(
        family=family,
        steps=rng.randint(4, 6),
        jitter=rng.uniform(0, MOST_JITTER),
        synced=rng.random() < 0.5,
        sequence_numbers=rng.random() < 0.7,
        blocking_on_compute_stream=rng.random() < 0.5,
        seed=seed,
        **SIZES[family](rng),
    )
    spec = replace(spec, clocks=_clocks(rng, spec.hosts))
    if cause == "data":
        spec = replace(spec, synced=True)
    if cause == "slow_host" and spec.hosts == 1:
        spec = replace(spec, ranks_per_host=spec.ranks // 2)
    if cause is None:
        return spec
    return replace(spec, defect=_defect(random.Random(f"{family} {seed} {cause}"), spec, cause))


def _ddp(rng: random.Random) -> dict[str, Any]:
    layers, layer_us = rng.randint(6, 12), rng.uniform(200, 600)
    return {
        "dp": rng.choice((4, 8)),
        "ranks_per_host": rng.choice((2, 4, 8)),
        "layers": layers,
        "layer_us": layer_us,
        "gradient_us": rng.uniform(0.3, 1.2) * 2 * layers * layer_us,
        "buckets": rng.randint(2, 5),
    }


def _fsdp(rng: random.Random) -> dict[str, Any]:
    layer_us = rng.uniform(200, 600)
    return {
        "dp": rng.choice((4, 8)),
        "ranks_per_host": rng.choice((2, 4, 8)),
        "layers": rng.randint(4, 8),
        "layer_us": layer_us,
        "exchange_us": rng.uniform(0.3, 1.2) * layer_us,
        "prefetch": rng.choice((None, None, 0, 1, 2)),
    }


def _expert(rng: random.Random) -> dict[str, Any]:
    ep, dp = rng.choice(((4, 4), (4, 8), (8, 8), (2, 4)))
    layers, layer_us = rng.randint(3, 6), rng.uniform(400, 1000)
    return {
        "ep": ep,
        "dp": dp,
        "ranks_per_host": rng.choice((ep, 8)),
        "layers": layers,
        "layer_us": layer_us,
        "exchange_us": rng.uniform(0.1, 0.4) * layer_us,
        "gradient_us": rng.uniform(0.1, 0.4) * layers * layer_us,
        "dispatch": rng.choice(("all_to_all", "all_to_all", "kernels")),
        "dispatch_namespace": rng.choice(("deep_ep", "moe_comm", "uccl::ep")),
    }


def _tensor(rng: random.Random) -> dict[str, Any]:
    tp, dp = rng.choice(((2, 2), (2, 4), (4, 2)))
    layers, layer_us = rng.randint(4, 8), rng.uniform(200, 600)
    return {
        "tp": tp,
        "dp": dp,
        "ranks_per_host": rng.choice((tp, 2 * tp)),
        "layers": layers,
        "layer_us": layer_us,
        "exchange_us": rng.uniform(0.1, 0.3) * layer_us,
        "gradient_us": rng.uniform(0.1, 0.4) * layers * layer_us,
        "buckets": rng.randint(1, 3),
    }


def _pipeline(rng: random.Random) -> dict[str, Any]:
    pp = rng.choice((2, 4, 4, 8))
    schedule = rng.choice(("gpipe", "1f1b", "1f1b", "interleaved"))
    virtual_stages = 2 if schedule == "interleaved" else 1
    return {
        "pp": pp,
        "ranks_per_host": rng.choice((2, 4, 8)),
        "layers": pp * virtual_stages * rng.randint(1, 2),
        "layer_us": rng.uniform(300, 900),
        "microbatches": pp * rng.randint(1, 2) if pp == 8 else pp * rng.randint(2, 3),
        "message_us": rng.uniform(15, 60),
        "schedule": schedule,
        "virtual_stages": virtual_stages,
        "batched_messages": rng.random() < 0.5,
        "labels": rng.choice(("none", "action") if schedule == "interleaved" else ("none", "microbatch")),
    }


def _hybrid(rng: random.Random) -> dict[str, Any]:
    sizes = _pipeline(rng)
    pp, tp, dp = rng.choice(((2, 2, 2), (4, 2, 1), (2, 2, 4), (4, 2, 2)))
    layer_us = sizes["layer_us"]
    most = 1 if pp * tp * dp == 16 else 2  # so that large jobs take little longer to simulate
    return sizes | {
        "pp": pp,
        "tp": tp,
        "dp": dp,
        "ranks_per_host": rng.choice((4, 8)),
        "layers": pp * sizes["virtual_stages"] * rng.randint(1, most),
        "microbatches": pp * rng.randint(1, most),
        "exchange_us": rng.uniform(0.05, 0.15) * layer_us,
        "gradient_us": rng.uniform(0.5, 1.5) * layer_us,
        "buckets": rng.randint(1, 2),
    }


def _clocks(rng: random.Random, hosts: int) -> Clocks:
    """Return clocks that are right, offset, drift too, or jump too. The first machine has the right time."""
    kind = rng.choices(("right", "offset", "drift", "jump"), (40, 35, 20, 5))[0]
    offsets = (0.0, *(rng.uniform(-3000, 3000) for _ in range(hosts - 1)))
    drifts = (0.0, *(rng.uniform(-50, 50) for _ in range(hosts - 1)))
    jumps = (0.0, *(rng.choice((-1, 1)) * rng.uniform(500, 2000) for _ in range(hosts - 1)))
    return Clocks(
        offset_us=offsets if kind != "right" else (),
        drift_ppm=drifts if kind in ("drift", "jump") else (),
        jump_us=jumps if kind == "jump" else (),
        jump_at=rng.uniform(0.3, 0.7),
    )


def _defect(rng: random.Random, spec: JobSpec, cause: Cause) -> Defect:
    rank = rng.randrange(spec.ranks)
    pp, dp, tp = spec.coordinates(rank)
    match cause:
        case "data":
            ranks = [spec.rank_at(0, dp, tp)]  # where the batch is loaded
        case "slow_host":
            host = spec.host_of(rank)
            ranks = [other for other in range(spec.ranks) if spec.host_of(other) == host]
        case "link":
            ranks = [spec.rank_at(pp, dp, other) for other in range(spec.tp)]
        case "uneven_stage":
            ranks = [spec.rank_at(pp, i, j) for i in range(spec.dp) for j in range(spec.tp)]
        case "slow_edge":
            pp = rng.randrange(spec.pp - 1)
            ranks = [spec.rank_at(pp, dp, tp), spec.rank_at(pp + 1, dp, tp)]
        case _:
            ranks = [rank]
    delay_us = rng.uniform(*DELAY_SHARES) * nominal_step_us(spec)
    stage = pp + spec.pp * rng.randrange(spec.virtual_stages) if cause == "uneven_stage" else None
    return Defect(cause=cause, ranks=tuple(ranks), delay_us=delay_us, stage=stage)


def nominal_step_us(spec: JobSpec) -> float:
    """Return about how long a healthy step takes."""
    fill = 1 + (spec.pp - 1) / (spec.microbatches * spec.virtual_stages) if spec.pp > 1 else 1.0
    exchanges_us = 2 * spec.layers_of_rank * spec.microbatches * spec.exchange_us * (spec.tp > 1 or 2 * (spec.ep > 1))
    return (spec.compute_us + exchanges_us) * fill + spec.optimizer_us


SIZES: Mapping[Family, Callable[[random.Random], dict[str, Any]]] = {
    "ddp": _ddp,
    "fsdp": _fsdp,
    "tensor": _tensor,
    "pipeline": _pipeline,
    "expert": _expert,
    "hybrid": _hybrid,
}
