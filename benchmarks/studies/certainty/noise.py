"""By how much ranks differ from each other without a cause: noise as recorded processes show it.

The sizes are those of recorded runs on CPUs, in which nothing was planted (`docs/certainty.md`). Four ranks or more
shared few cores. Of how long a rank works in a step:

* every step of every rank varies by 1.2 % (standard deviation);
* in one step of twenty, a burst adds 6 % on average, distributed exponentially: the operating system runs something
  else. With a chance of 0.3 the next step of that rank has one, too;
* ranks differ by 0.5 % in all steps, as cores do.
"""

from __future__ import annotations

import random

_VARIATION, _BURST, _BURST_CHANCE, _STAYS, _OFFSET = 0.012, 0.06, 0.05, 0.3, 0.005


def noise_of(rng: random.Random, ranks: int, steps: int, times: float) -> list[list[tuple[float, float]]]:
    """Return of each rank and step by which share of its work it varies, and the share that a burst adds.

    times: how many times as large as recorded the noise is.
    """
    result = []
    for _ in range(ranks):
        offset = rng.gauss(0.0, _OFFSET * times)
        in_burst, of_rank = False, []
        for _ in range(steps):
            in_burst = rng.random() < (_STAYS if in_burst else _BURST_CHANCE)
            burst = rng.expovariate(1 / (_BURST * times)) if in_burst else 0.0
            of_rank.append((max(offset + rng.gauss(0.0, _VARIATION * times), -0.2), burst))
        result.append(of_rank)
    return result
