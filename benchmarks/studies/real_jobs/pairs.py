"""Pairs of runs of the probes: one with a planted defect, one without it and otherwise the same.

A seed draws ranks, culprit and delay. The delay is 10 to 60 % of the step without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_RECORDED = ("--recorded", "20")  # so many that medians tell the delay: steps differ by a few ms
_STEPS = ("--steps", "25", *_RECORDED)
_STRAGGLER_MS, _DDP_MS, _FSDP_MS, _TENSOR_MS, _PHASES_MS = 95, 150, 135, 85, 105  # a step without a defect
_LAYER_MS, _TOKEN_US = "12", "80"  # a forward with tensor parallelism, and of a token with experts
_STAGE_MS = 8.0  # a forward, and each half of a backward


@dataclass(frozen=True)
class Pair:
    """Two runs of a probe.

    Attributes:
        kind: what is planted, and in which parallelism.
        probe: file below `probes/`, without suffix.
        culprits: the ranks that have the defect; empty if all have.
        causes: those causes of a finding that name the defect.
        planted: options that plant the defect.
        removed: options of the run without it.
        options: those that both runs have.
    """

    kind: str
    seed: int
    probe: str
    ranks: int
    culprits: tuple[int, ...]
    causes: tuple[str, ...]
    planted: tuple[str, ...]
    removed: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def delay_ns(self) -> int | None:
        """Return by how much one rank is delayed in each step; None where something else is planted."""
        if "--delay-ms" not in self.planted:
            return None
        return round(float(self.planted[self.planted.index("--delay-ms") + 1]) * 1e6)


Draw = Callable[[str, int, random.Random], Pair]


def pairs(kinds: list[str], seeds: range) -> list[Pair]:
    """Return the pairs of these kinds, by seed and then by kind."""
    return [KINDS[kind](kind, seed, random.Random(f"{kind} {seed}")) for seed in seeds for kind in kinds]


def _straggler(cause: str) -> Draw:
    def draw(kind: str, seed: int, drawn: random.Random) -> Pair:
        ranks, culprit = _one_of(drawn, (2, 3, 4))
        planted = ("--cause", cause, "--rank", str(culprit), "--delay-ms", _delay(drawn, _STRAGGLER_MS))
        options = (*_RECORDED, "--seed", str(seed), "--jitter", f"{drawn.uniform(0.0, 0.05):.3f}")
        return Pair(kind, seed, "straggler", ranks, (culprit,), (cause,), planted, ("--cause", "none"), options)

    return draw


def _slow_rank(probe: str, step_ms: float, sizes: tuple[int, ...], *options: str) -> Draw:
    def draw(kind: str, seed: int, drawn: random.Random) -> Pair:
        ranks, culprit = _one_of(drawn, sizes)
        planted = ("--slow-rank", str(culprit), "--delay-ms", _delay(drawn, step_ms))
        return Pair(kind, seed, probe, ranks, (culprit,), ("compute",), planted, options=(*_STEPS, *options))

    return draw


def _data_on_all(kind: str, seed: int, drawn: random.Random) -> Pair:
    """Without the defect, a worker loads ahead: also what loading takes without the delay. Workers need cores, too."""
    ranks = 2
    options = (*_STEPS, "--slow-loader-ms", _delay(drawn, _PHASES_MS))
    return Pair(kind, seed, "phases", ranks, (), ("data",), (), ("--workers", "1"), options)


def _uneven_stage(kind: str, seed: int, drawn: random.Random) -> Pair:
    """Without the defect, the layers of the slow stage are spread over all stages: none goes."""
    ranks, stage = _one_of(drawn, (3, 4))
    slower_ms = drawn.uniform(0.3, 1.0) * _STAGE_MS
    planted = ("--sleep-ms", str(_STAGE_MS), "--slow-stage", str(stage), "--slower-ms", f"{slower_ms:.2f}")
    removed = ("--sleep-ms", f"{_STAGE_MS + slower_ms / ranks:.2f}")
    options = (*_STEPS, "--schedule", drawn.choice(("1f1b", "gpipe")))
    return Pair(kind, seed, "pipeline", ranks, (stage,), ("imbalance",), planted, removed, options)


def _hot_expert(kind: str, seed: int, drawn: random.Random) -> Pair:
    ranks, culprit = _one_of(drawn, (2, 3, 4))
    causes = ("more_work", "expert_load")
    options = (*_STEPS, "--sleep-us", _TOKEN_US)
    return Pair(kind, seed, "expert", ranks, (culprit,), causes, ("--hot-expert", str(culprit)), options=options)


def _one_of(drawn: random.Random, sizes: tuple[int, ...]) -> tuple[int, int]:
    """Return a number of ranks, and one of them."""
    ranks = drawn.choice(sizes)
    return ranks, drawn.randrange(ranks)


def _delay(drawn: random.Random, step_ms: float) -> str:
    return f"{drawn.uniform(0.1, 0.6) * step_ms:.1f}"


KINDS: dict[str, Draw] = {
    "compute on one rank": _straggler("compute"),
    "host on one rank": _straggler("host"),
    "data on one rank": _straggler("data"),
    "data on all ranks": _data_on_all,
    "uneven stage": _uneven_stage,
    "hot expert": _hot_expert,
    "more work on one rank": _straggler("more_work"),
    "compute on one rank, DDP backward": _slow_rank("ddp", _DDP_MS, (2, 3)),
    "compute on one rank, FSDP2": _slow_rank("fsdp", _FSDP_MS, (2,)),  # more of them would take turns on two cores
    "compute on one rank, tensor parallel": _slow_rank("tensor", _TENSOR_MS, (2, 4), "--sleep-ms", _LAYER_MS),
}
"""Each by its name; those of the quick study come first."""
