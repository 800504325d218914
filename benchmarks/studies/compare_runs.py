"""How often `tracekit compare` and `tracekit check` are right about simulated runs.

    python -m benchmarks.studies.compare_runs [--pairs N] [--first-seed N] [--quick] [--docs] [--json FILE]

Runs of the same job differ by 0.5 % and their steps by 2 %, both as standard deviations. The first table is on step
lengths alone, in which thousands of pairs are judged. The second is on simulated jobs of four ranks, from whose reports
the comparison takes the causes: steps are made 5 % longer, and the cause with the largest change should be the planted
one. Where each rank's steps vary by 2 %, those of the job, which waits for the slowest rank, vary by 1.4 %.

The exit code is 1 if a must is not met where each rank's steps vary: false calls at most 1 %, 95 % of the planted
slowdowns found, the right cause in 90 %. Parts add up to the change everywhere.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.simulated import Cluster
from benchmarks.studies.documents import Row, between_marks, markdown
from benchmarks.studies.rates import rate
from tracekit.comparison.comparison import SECTIONS_READ, Comparison, compare
from tracekit.comparison.step_verdict import UNEVEN_STEPS, Judgement, estimate_change, judge
from tracekit.gates.evaluation import check
from tracekit.gates.gates import DEFAULT_GATES
from tracekit.model.events import Float64
from tracekit.model.table import rows_of
from tracekit.report.report import Report, analyze

STEP_VARIATION, RUN_VARIATION = 0.02, 0.005
_DOCS = Path(__file__).parents[2] / "docs" / "compare.md"
_STEP_NS = 100_000_000
_RANKS, _PIECES = 4, 6
_TRANSFER_NS = 1_000_000
_SLOWEST = 1.03 * STEP_VARIATION  # of four ranks, beyond their mean: a rank that is slower than all is so much slower
_SLOW_RANK = 2

Planted = Literal["compute", "transfer", "data", "host", "slow rank"]
PLANTED: dict[Planted, frozenset[str]] = {
    "compute": frozenset({"compute"}),
    "transfer": frozenset({"transfer"}),
    "data": frozenset({"data"}),
    "host": frozenset({"other"}),  # what the recording does not explain
    "slow rank": frozenset({"slow_compute", "variation"}),
}
"""What is planted, and the causes that it may be called."""

Varying = Literal["ranks", "job"]
"""ranks: each rank's steps vary by themselves. job: those of all ranks vary together."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How runs and their steps vary.

    Attributes:
        steps: standard deviation of a step, as a share of it.
        correlation: of a step with the one before it.
        stalls: the share of the steps that are 20 % longer, which ones by chance.
    """

    steps: float = STEP_VARIATION
    runs: float = RUN_VARIATION
    correlation: float = 0.0
    stalls: float = 0.0


# ---- step lengths alone ----------------------------------------------------------------------------------------------


def step_lengths_of(rng: np.random.Generator, steps: int, noise: Noise, slowdown: float = 0.0) -> Float64:
    """Return the step lengths of a run in ns, float64 [steps]."""
    deviations = rng.normal(size=steps)
    for step in range(1, steps):
        fresh = math.sqrt(1 - noise.correlation**2) * deviations[step]
        deviations[step] = noise.correlation * deviations[step - 1] + fresh
    of_run = 1 + noise.runs * rng.normal()
    stalls = 1 + 0.2 * (rng.random(steps) < noise.stalls)
    return np.asarray(_STEP_NS * (1 + slowdown) * of_run * stalls * (1 + noise.steps * deviations))


def judge_lengths(
    seed: int, steps: tuple[int, int], noise: Noise, *, baselines: int = 1, slowdown: float = 0.0
) -> Judgement:
    """Return the verdict on a simulated pair. steps: of each baseline run, and of the candidate."""
    rng = np.random.default_rng(seed)
    runs = [step_lengths_of(rng, steps[0], noise) for _ in range(baselines)]
    return judge(estimate_change(runs, step_lengths_of(rng, steps[1], noise, slowdown))).judgement


@dataclass(frozen=True, kw_only=True)
class LengthRow:
    """The verdicts on many pairs of runs, all of one kind."""

    baselines: int
    steps: tuple[int, int]
    noise: Noise
    same: tuple[Judgement, ...]
    slower: tuple[Judgement, ...]

    @property
    def false_calls(self) -> list[bool]:
        return [judgement in {"slower", "faster"} for judgement in self.same]

    @property
    def found(self) -> list[bool]:
        return [judgement == "slower" for judgement in self.slower]


_OF_RANKS = 0.7 * STEP_VARIATION  # of the step of a job whose four ranks vary each by itself
_KINDS: tuple[tuple[int, tuple[int, int], Noise], ...] = (
    (1, (10, 10), Noise(steps=_OF_RANKS)),
    (3, (10, 10), Noise(steps=_OF_RANKS)),
    (1, (8, 8), Noise()),
    (1, (10, 10), Noise()),
    (1, (12, 12), Noise()),
    (1, (20, 20), Noise()),
    (1, (10, 50), Noise()),
    (1, (50, 10), Noise()),
    (3, (10, 10), Noise()),
    (1, (10, 10), Noise(steps=_OF_RANKS, correlation=0.3)),
    (1, (10, 10), Noise(steps=_OF_RANKS, correlation=0.5)),
    (1, (10, 10), Noise(correlation=0.3)),
    (1, (10, 10), Noise(correlation=0.5)),
    (1, (20, 20), Noise(correlation=0.5)),
    (1, (50, 50), Noise(correlation=0.5)),
    (1, (10, 10), Noise(steps=_OF_RANKS, stalls=0.1)),
    (1, (20, 20), Noise(steps=_OF_RANKS, stalls=0.1)),
    (1, (20, 20), Noise(steps=_OF_RANKS, stalls=0.3)),
    (1, (10, 10), Noise(steps=0.04)),
    (1, (40, 40), Noise(steps=0.04)),
)
"""Baselines, steps of a baseline and of the candidate, and their noise."""


def _length_rows(pairs: int, first_seed: int) -> list[LengthRow]:
    return [
        LengthRow(
            baselines=baselines,
            steps=steps,
            noise=noise,
            same=tuple(judge_lengths(first_seed + i, steps, noise, baselines=baselines) for i in range(pairs)),
            slower=tuple(
                judge_lengths(first_seed + pairs + i, steps, noise, baselines=baselines, slowdown=0.05)
                for i in range(pairs)
            ),
        )
        for baselines, steps, noise in _KINDS
    ]


def _length_table(rows: Sequence[LengthRow]) -> list[Row]:
    heading = ("baselines", "steps", "step varies by", "correlation", "stalls", "false calls", "5 % slower is found")
    return [
        heading,
        *(
            (
                str(row.baselines),
                " and ".join(map(str, row.steps)),
                f"{row.noise.steps:.1%}",
                f"{row.noise.correlation:.1f}",
                f"{row.noise.stalls:.0%}",
                rate(row.false_calls),
                rate(row.found),
            )
            for row in rows
        ),
    ]


# ---- jobs ------------------------------------------------------------------------------------------------------------


def report_of(
    seed: str, *, steps: int, varying: Varying, planted: Planted | None = None, share: float = 0.05
) -> Report:
    """Return the report on a simulated data-parallel run, in which `share` of a step may be planted."""
    rng = random.Random(seed)
    of_run = 1 + rng.gauss(0.0, RUN_VARIATION)
    cluster, extra_ns = Cluster(_RANKS), share * _STEP_NS
    for _ in cluster.steps(steps):
        together = 1 + rng.gauss(0.0, STEP_VARIATION)
        factors = [
            of_run * (together if varying == "job" else 1 + rng.gauss(0.0, STEP_VARIATION)) for _ in range(_RANKS)
        ]
        for rank, factor in enumerate(factors):
            if planted == "data":
                cluster.work(rank, data=round(extra_ns * factor))
            if planted == "host":
                cluster.work(rank, host=round(extra_ns * factor))
        for _ in range(_PIECES):
            for rank, factor in enumerate(factors):
                work_ns = _STEP_NS - _PIECES * _TRANSFER_NS + (extra_ns if planted == "compute" else 0.0)
                if planted == "slow rank" and rank == _SLOW_RANK:
                    work_ns += extra_ns + (_SLOWEST * _STEP_NS if varying == "ranks" else 0.0)
                cluster.work(rank, compute=round(work_ns * factor / _PIECES))
        for _ in range(_PIECES):
            transfer_ns = _TRANSFER_NS + (extra_ns / _PIECES if planted == "transfer" else 0.0)
            cluster.collective(range(_RANKS), transfer=round(transfer_ns * of_run), size_bytes=1 << 20)
    return analyze(cluster.run(world_size=_RANKS), only=SECTIONS_READ)


@dataclass(frozen=True, kw_only=True)
class JobPair:
    """What is said of a pair of simulated runs.

    Attributes:
        cause: the cause with the largest change.
        adds_up: whether the causes sum to the change of the median step.
        passes: whether `tracekit check` lets it pass, with its default gate.
    """

    planted: Planted | None
    judgement: Judgement
    cause: str
    adds_up: bool
    passes: bool

    @property
    def is_right(self) -> bool:
        """Return whether what was planted is found, by its cause, or nothing was planted and nothing is called."""
        if self.planted is None:
            return self.judgement in {"equivalent", "inconclusive"}
        return self.judgement == "slower" and self.cause in PLANTED[self.planted]


def judge_pair(
    seed: int, *, steps: int, varying: Varying, planted: Planted | None = None, same: bool = False
) -> JobPair:
    """Return what is said of a pair. same: a run is compared with itself."""
    baseline = report_of(f"{seed} baseline", steps=steps, varying=varying)
    candidate = baseline if same else report_of(f"{seed} candidate", steps=steps, varying=varying, planted=planted)
    comparison = compare([baseline], candidate)
    return JobPair(
        planted=planted,
        judgement=comparison.verdict.judgement,
        cause=_largest_cause(comparison),
        adds_up=sum(row["change_ns"] for row in rows_of(comparison, "causes"))
        == comparison.candidate_ns - comparison.baseline_ns,
        passes=check(DEFAULT_GATES, candidate, [baseline]).passes,
    )


def _largest_cause(comparison: Comparison) -> str:
    rows = [row for row in rows_of(comparison, "causes") if row["cause"] != UNEVEN_STEPS]
    return str(rows[0]["cause"])


def _job_table(groups: dict[str, list[JobPair]]) -> list[Row]:
    heading = ("pairs", "called slower or faster", "and by the right cause", "parts add up", "check passes")
    return [
        heading,
        *(
            (
                name,
                rate(pair.judgement in {"slower", "faster"} for pair in pairs),
                rate(pair.is_right for pair in pairs) if pairs[0].planted else "",
                rate(pair.adds_up for pair in pairs),
                rate(pair.passes for pair in pairs),
            )
            for name, pairs in groups.items()
        ),
    ]


def _job_groups(pairs: int, first_seed: int) -> dict[str, list[JobPair]]:
    groups: dict[str, list[JobPair]] = {}
    for varying in ("ranks", "job"):
        said = "each rank varies" if varying == "ranks" else "the job varies"
        groups[f"same kind, {said}"] = [
            judge_pair(seed, steps=10, varying=varying) for seed in range(first_seed, first_seed + pairs)
        ]
        each = max(pairs // len(PLANTED), 1)
        for number, planted in enumerate(PLANTED, start=1):
            seeds = range(first_seed + number * pairs, first_seed + number * pairs + each)
            found = [judge_pair(seed, steps=10, varying=varying, planted=planted) for seed in seeds]
            groups[f"{planted}, {said}"] = found
    groups["a run with itself"] = [
        judge_pair(seed, steps=10, varying="ranks", same=True) for seed in range(first_seed, first_seed + pairs)
    ]
    return groups


def main() -> None:
    options = _parse_options()
    lengths = _length_rows(200 if options.quick else 2000, options.first_seed)
    tables = {"lengths": markdown(_length_table(lengths))}
    print(tables["lengths"], flush=True)
    groups = _job_groups(40 if options.quick else options.pairs, options.first_seed)
    tables["jobs"] = markdown(_job_table(groups))
    print(f"\n{tables['jobs']}")
    if options.docs:
        _DOCS.write_text(between_marks(_DOCS.read_text(), tables))
    if options.json:
        document = {name: [asdict(pair) for pair in pairs] for name, pairs in groups.items()}
        options.json.write_text(json.dumps({"lengths": [asdict(row) for row in lengths], "jobs": document}, indent=1))
    if missed := _missed(lengths, groups):
        sys.exit(f"not met: {'; '.join(missed)}")


def _missed(lengths: Sequence[LengthRow], groups: dict[str, list[JobPair]]) -> list[str]:
    """Return which musts are not met, on jobs in which each rank's steps vary."""
    same = [pair for name, pairs in groups.items() for pair in pairs if pair.planted is None and "job" not in name]
    slow = [pair for name, pairs in groups.items() for pair in pairs if pair.planted is not None and "job" not in name]
    every = [pair for pairs in groups.values() for pair in pairs]
    musts = {
        "false calls at most 1 %": np.mean([pair.judgement in {"slower", "faster"} for pair in same]) <= 0.01,
        "5 % found in 95 %": np.mean([pair.judgement == "slower" for pair in slow]) >= 0.95,
        "the right cause in 90 %": np.mean([pair.is_right for pair in slow]) >= 0.9,
        "parts add up": all(pair.adds_up for pair in every),
        "check passes 90 % of one kind": np.mean([pair.passes for pair in same]) >= 0.9,
        "check stops 97.5 % of the planted ones": np.mean([pair.passes for pair in slow]) <= 0.025,
    }
    return [must for must, is_met in musts.items() if not is_met]


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200, help="of simulated jobs, of each kind")
    parser.add_argument("--first-seed", type=int, default=0, help="other seeds simulate other pairs")
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs of step lengths, 40 of jobs")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/compare.md")
    parser.add_argument("--json", type=Path, help="write what was said of every pair to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
