"""How sure it is that a rank, a set of ranks or a link delays the others: sure, likely, or not at all.

A candidate causes a delay d(s) in each of n steps s. Its size is the median m over the steps, which one unusual step
does not change. Noise is what the ranks that are not blamed show in the same steps: e(p, s) is by how much rank p
exceeds its peers, b(p) its median over the steps. Without such ranks it is how the candidate varies, d(s) - m. With v
values of noise

    sigma^2 = (v0 (f step)^2 + sum e(p, s)^2) / (v0 + v)
    within  = pi / 2 sigma^2 / n
    SE^2    = max(within, (u0 within + u between) / (u0 + u))
    t       = m / SE

sigma is the moderated deviation of Smyth, "Linear models and empirical Bayes methods" (2004): few values alone would
now and then be equal by chance, so v0 values of a usual size f step join them. pi / 2 is the variance of a median of
normal values, beside that of their mean. `between` is the square of what 68 % of the |b(p)| do not exceed: what u ranks
differ by in all steps, moderated likewise. With two ranks or fewer than four steps little is known of noise: f is 2 %,
else 1 %, as in recorded runs.

The largest of k candidates is large by chance, so p-values of Student's t count k times (Bonferroni). A candidate that
stands out is also apart from the others (the ratio of Dixon, 1950): no rank outside comes near one inside. Its delay
shows in most steps, exceeds the errors of clocks, and is a notable share of the step.

In recorded runs two healthy ranks differ by up to 5 % of a step in all steps of a short window, as other processes take
a core for so long. So a likely delay is at least as long; a smaller one has to be sure.

Bursts that hit one rank in most of the steps look like a delay. Recorded runs show one in q = 5 % of the steps,
exponentially distributed with a mean of h = 6 % of a step, and another in the next step with a chance of r = 0.3. That
one of k candidates has bursts in n steps, of which most are at least x, has about the chance

    k q r^(n - 1) exp(-x (n // 2 + 1) / h)

A sure delay is so long that this is below 0.5 %.

Of one step it is not known whether the delay stays. The chance of a burst is added to the p-value of t. There it counts
in how many segments between collectives the rank comes last. The p-value of that is of the binomial distribution, whose
chance is one in the number of members. Fisher's method combines both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tracekit.findings.finding import Certainty, Condition, Threshold
from tracekit.findings.thresholds import NOTABLE_SAVING, NOTABLE_SHARE
from tracekit.model.events import Float64, Int64
from tracekit.stats.uncertainty import student_quantile, student_tail

Lack = Literal["size", "significance", "another step", "persistence", "distance"]
"""What keeps a candidate from a grade: it is small, or no more than noise; the steps are too few to tell; it shows in
too few of them; or another rank is nearly as slow.
"""

_FEW_STEPS = 4
_USUAL_SHARE, _FLOOR_SHARE = 0.01, 0.02  # of a step, f above
BURST_CHANCE, BURST_SHARE = 0.05, 0.06  # q and h above
BURST_AGAIN = 0.3  # r above
_USUAL_VALUES, _USUAL_RANKS = 12, 4  # v0 and u0 above
_OUTLIERS = 5
_ONE_DEVIATION = 0.6827  # of normal values are within one standard deviation
_SHOWN = 1 / 3  # of its size: a step with less does not show a delay


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """What a grade takes.

    Attributes:
        size: the least delay.
        alpha: how often the largest of all candidates may exceed the threshold by chance, if noise were normal. Bursts
            make its tails heavier, so a sure verdict needs a small one.
        persistence: share of the steps that show the delay.
        apart: the least distance of the candidate from all others, as a share of its size.
        steps: how many.
        bursts: how often bursts of one of all candidates may exceed the threshold; 1 where they do not count.
    """

    size: Threshold
    alpha: float
    persistence: float
    apart: float
    steps: int
    bursts: float = 1.0


_RULES: dict[Certainty, _Rule] = {
    "sure": _Rule(size=NOTABLE_SAVING, alpha=1e-5, persistence=0.8, apart=0.5, steps=3, bursts=0.005),
    "likely": _Rule(size=NOTABLE_SHARE, alpha=0.005, persistence=0.75, apart=0.5, steps=1),
}


@dataclass(frozen=True)
class LastArrivals:
    """How often a rank came last to a collective.

    Attributes:
        last: in how many segments between collectives.
        segments: how many there are.
        share: how often it would come last by chance: one in the number of members, the mean.
    """

    last: int
    segments: int
    share: float

    @property
    def chance(self) -> float:
        """Return how likely it is to come last as often by chance: the tail of the binomial distribution."""
        each = (
            math.comb(self.segments, i) * self.share**i * (1 - self.share) ** (self.segments - i)
            for i in range(self.last, self.segments + 1)
        )
        return min(math.fsum(each), 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What is known of one candidate's delay in n steps.

    Attributes:
        series_ns: the delay in each step, int64 [n].
        peers_ns: noise of p ranks that are not blamed, int64 [n, p].
        slow_ns: the delays of the q ranks that are blamed, int64 [n, q].
        clock_ns: by how much times of two ranks may be off each other; 0 where none are compared.
        last_arrivals: of one step, how often the rank came last.
        outsiders: share of the blamed ranks, and of the others, that may be unlike the rest.
    """

    series_ns: Int64
    peers_ns: Int64
    slow_ns: Int64
    clock_ns: int = 0
    last_arrivals: LastArrivals | None = None
    outsiders: float = 0.0

    @property
    def size_ns(self) -> float:
        """Return the median of the delays; of two steps the smaller one: either may have been an accident."""
        return float(np.median(self.series_ns) if len(self.series_ns) != 2 else self.series_ns.min())

    @property
    def persistence(self) -> float:
        """Return the share of the steps that show the delay."""
        least_ns = max(_SHOWN * self.size_ns, self.clock_ns)
        return float(np.mean(self.series_ns > least_ns)) if self.size_ns > 0 else 0.0

    @property
    def apart(self) -> float:
        """Return how far the candidate is from the nearest of the others, as a share of its size."""
        if self.size_ns <= 0:
            return 0.0
        if not self.peers_ns.shape[1]:
            return 1.0
        lowest_ns = np.quantile(np.median(self.slow_ns, axis=0), self.outsiders)
        highest_ns = np.quantile(np.median(self.peers_ns, axis=0), 1 - self.outsiders)
        return float(lowest_ns - highest_ns) / self.size_ns


@dataclass(frozen=True, kw_only=True)
class Grading:
    """What a candidate is compared with.

    Attributes:
        step_ns: mean length of a step.
        candidates: how many there are, ranks and sets and links together.
        ranks: how many ranks were measured.
        steps: how many steps were recorded; the first may not count.
        complete: whether no rank and no step is missing.
    """

    step_ns: float
    candidates: int
    ranks: int
    steps: int
    complete: bool = True

    def noise_ns(self, evidence: Evidence) -> float:
        """Return the standard error of the candidate's size."""
        return self._noise(evidence)[0]

    def threshold_ns(self, evidence: Evidence, grade: Certainty = "sure") -> float:
        """Return what the size of a candidate must exceed for a grade."""
        error_ns, freedom = self._noise(evidence)
        quantile = student_quantile(1 - _RULES[grade].alpha / max(self.candidates, 1), freedom)
        bursts_ns = self._bursts_ns(len(evidence.series_ns), _RULES[grade].bursts)
        return max(quantile * error_ns, bursts_ns, evidence.clock_ns, _RULES[grade].size * self.step_ns)

    def _bursts_ns(self, steps: int, chance: float) -> float:
        """Return the delay that bursts in all steps exceed with this chance, for the candidate with the largest."""
        of_any = self.candidates * BURST_CHANCE * BURST_AGAIN ** (steps - 1)
        most = steps // 2 + 1
        return BURST_SHARE * self.step_ns / most * math.log(max(of_any / chance, 1.0)) if chance < 1 else 0.0

    def grade(self, evidence: Evidence) -> Certainty | None:
        """Return how sure it is that the candidate delays the others; None if that is not even likely.

        What would be sure is likely where something is missing.
        """
        if self.lacks(evidence, "sure") is None:
            return "sure" if self.complete else "likely"
        return "likely" if self.lacks(evidence, "likely") is None else None

    def lacks(self, evidence: Evidence, grade: Certainty) -> Lack | None:
        """Return the first thing that a grade takes and a candidate does not have; None if it has all."""
        return next((lack for lack, condition in self.conditions(evidence, grade) if not condition.holds), None)

    def conditions(self, evidence: Evidence, grade: Certainty = "likely") -> list[tuple[Lack, Condition]]:
        """Return what a grade takes, in the order in which it is asked, and what it would lack without."""
        rule, size_ns, only_step = _RULES[grade], evidence.size_ns, evidence.last_arrivals
        share = size_ns / self.step_ns
        what = "delay in the median step, as a share of the step"
        result: list[tuple[Lack, Condition]] = [("size", Condition(what=what, value=share, bound=rule.size))]
        if only_step is None:
            least_ns, what = self.threshold_ns(evidence, grade), "delay, against what noise and clocks explain"
            result.append(("significance", Condition(what=what, value=size_ns / least_ns, bound=1, unit="times")))
        else:
            times = rule.alpha / max(self._chance_of_one_step(evidence, only_step), 1e-300)
            what = "how improbable chance is in one step, against what it takes"
            result.append(("another step", Condition(what=what, value=times, bound=1, unit="times")))
            what, times = "delay, against what the errors of clocks explain", size_ns / max(evidence.clock_ns, 1)
            result.append(("significance", Condition(what=what, value=times, bound=1, unit="times")))
        result.append(("another step", Condition(what="steps", value=self.steps, bound=rule.steps, unit="steps")))
        what, share = "share of the steps that show the delay", evidence.persistence
        result.append(("persistence", Condition(what=what, value=share, bound=rule.persistence)))
        what = "distance from all others, as a share of the delay"
        result.append(("distance", Condition(what=what, value=evidence.apart, bound=rule.apart)))
        return result

    def _chance_of_one_step(self, evidence: Evidence, last_arrivals: LastArrivals) -> float:
        """Return the p-value of the candidate in a run of one step, as the largest of all."""
        error_ns, freedom = self._noise(evidence)
        chance = student_tail(max(evidence.size_ns, 0.0) / max(error_ns, 1.0), freedom)
        chance += BURST_CHANCE * math.exp(-evidence.size_ns / max(BURST_SHARE * self.step_ns, 1.0))
        product = max(chance * last_arrivals.chance, 1e-300)
        return self.candidates * product * (1 - math.log(product))

    def _noise(self, evidence: Evidence) -> tuple[float, int]:
        """Return the standard error of the size, and its degrees of freedom."""
        steps, peers = evidence.peers_ns.shape
        values = evidence.peers_ns * 1.0 if peers else _without_outliers(evidence.series_ns - evidence.size_ns)
        count = values.size if peers else values.size - 1
        share = _FLOOR_SHARE if self.ranks == 2 or self.steps < _FEW_STEPS else _USUAL_SHARE
        usual = _USUAL_VALUES * (share * self.step_ns) ** 2
        of_median = math.pi / 2 if steps > 2 else 1.0
        within = of_median * (usual + float(np.sum(values**2.0))) / (_USUAL_VALUES + count) / steps
        between = 0.0
        if peers:
            between = float(np.quantile(np.abs(np.median(values, axis=0)), _ONE_DEVIATION) ** 2)
        moderated = (_USUAL_RANKS * within + peers * between) / (_USUAL_RANKS + peers)
        return math.sqrt(max(within, moderated)), _USUAL_VALUES + (peers or steps - 1)


def _without_outliers(values: npt.NDArray[np.floating]) -> Float64:
    """Leave out one value of five, those farthest from 0: without peers nothing else tells that a step was unusual."""
    return values[np.argsort(np.abs(values))][: len(values) - len(values) // _OUTLIERS].astype(np.float64)
