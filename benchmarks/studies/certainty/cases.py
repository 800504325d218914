"""Which runs are planted: what is slow, on which ranks, for how many steps, and what of the recording is missing.

Seeds for tuning and seeds for the score are apart. Whoever mends the verdict looks at tuning seeds alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

TUNING_SEEDS = range(1_000)
SCORING_SEEDS = range(12_000, 20_000)  # those from 10,000 on were scored before the rule changed
NOISES = {"half": 0.5, "recorded": 1.0, "double": 2.0}

Strategy = Literal["ddp", "fsdp", "tensor", "pipeline"]
Planted = Literal["compute", "more_work", "host", "data", "between"]
Where = Literal["one rank", "two ranks", "one host"]

STRATEGIES: tuple[Strategy, ...] = ("ddp", "fsdp", "tensor", "pipeline")
PLANTED: tuple[Planted, ...] = ("compute", "more_work", "host", "data", "between")
WHERE: tuple[Where, ...] = ("one rank", "two ranks", "one host")
_RANKS = (2, 4, 8, 16, 32, 64)
_DELAY = (0.15, 0.5)  # of a step
_LEAST_RANKS: dict[str, int] = {"one rank": 2, "two ranks": 4, "one host": 4}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run.

    Attributes:
        noise: how many times as large as recorded.
        planted: what the slow ranks do longer; None in a run without a defect.
        slow: the slow ranks, ascending.
        delay: by which share of a step they take longer.
        missing: ranks whose files are missing.
    """

    seed: int
    strategy: Strategy
    ranks: int
    steps: int
    noise: float
    planted: Planted | None = None
    where: Where | None = None
    slow: tuple[int, ...] = ()
    delay: float = 0.0
    missing: tuple[int, ...] = ()

    @property
    def cause(self) -> str | None:
        """Return what the verdict should call it: a rank that sleeps between steps is held up by its host."""
        return "host" if self.planted == "between" else self.planted

    @property
    def ranks_per_host(self) -> int:
        return max(self.ranks // 2, 1)


def cases(
    seeds: Sequence[int],
    noise: float,
    *,
    where: Where | None = None,
    steps: Sequence[int] = (3, 4, 5, 6),
    loses_a_rank: bool = False,
) -> list[Case]:
    """Return a case a seed; without `where` nothing is slow."""
    return [_case(seed, noise, where, steps, loses_a_rank) for seed in seeds]


def _case(seed: int, noise: float, where: Where | None, steps: Sequence[int], loses_a_rank: bool) -> Case:
    rng = random.Random(f"{seed} {where} {noise} {steps} {loses_a_rank}")
    strategy = STRATEGIES[seed % len(STRATEGIES)]
    least = max(_LEAST_RANKS.get(where or "", 2), 2 if strategy in ("ddp", "fsdp") else 4)
    ranks = rng.choice([count for count in _RANKS if count >= max(least, 3 if loses_a_rank else 2)])
    number = rng.choice(steps)
    missing = (rng.randrange(ranks),) if loses_a_rank else ()
    plain = Case(seed=seed, strategy=strategy, ranks=ranks, steps=number, noise=noise, missing=missing)
    if where is None:
        return plain
    planted = PLANTED[seed // len(STRATEGIES) % len(PLANTED)]
    slow = _slow_ranks(rng, where, strategy, ranks)
    return Case(**{**vars(plain), "planted": planted, "where": where, "slow": slow, "delay": rng.uniform(*_DELAY)})


def _slow_ranks(rng: random.Random, where: Where, strategy: Strategy, ranks: int) -> tuple[int, ...]:
    if where == "one rank":
        return (rng.randrange(ranks),)
    if where == "one host":
        half = ranks // 2
        first = rng.choice((0, half))
        return tuple(range(first, first + half))
    slow = tuple(sorted(rng.sample(range(ranks), 2)))
    if strategy == "pipeline" and ranks == 4 and slow[0] % 2 == slow[1] % 2:
        return (0, 3)  # both ranks of a stage would make it uneven: they have no peers
    return slow
