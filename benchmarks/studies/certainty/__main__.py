"""How often the verdict on stragglers is right, and how often its certainty is deserved, on planted cases.

    python -m benchmarks.studies.certainty [--tuning] [--count N] [--show] [--write-docs]

Runs of 2 to 64 ranks in four strategies are simulated as summaries. Targets: a delay of at least 15 % of the step is
named right in 95 % of the cases of 3 to 6 steps, its cause in 90 %; of runs without a defect at most 1 % name somebody
surely, and at most 5 % likely. The exit code is 1 if a target is missed. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.studies.certainty import docs
from benchmarks.studies.certainty.cases import NOISES, SCORING_SEEDS, TUNING_SEEDS, WHERE, Case, cases
from benchmarks.studies.certainty.scoring import Score, score
from benchmarks.studies.rates import rate

COUNT = 400  # runs of each row without a defect; with one there are half as many


def groups(seeds: Sequence[int]) -> dict[str, list[Case]]:
    """Return the cases of each row of the tables."""
    half = seeds[: (len(seeds) + 1) // 2]
    result = {f"clean, {name} noise": cases(seeds, times) for name, times in NOISES.items()}
    for name, times in NOISES.items():
        for where in WHERE:
            result[f"{where}, {name} noise"] = cases(half, times, where=where)
    result["clean, one file missing"] = cases(seeds, 1.0, loses_a_rank=True)
    result["one rank, one file missing"] = cases(half, 1.0, where="one rank", loses_a_rank=True)
    for count in (1, 2):
        steps = "one step" if count == 1 else "two steps"
        result[f"clean, {steps}"] = cases(seeds, 1.0, steps=(count,))
        result[f"one rank, {steps}"] = cases(half, 1.0, where="one rank", steps=(count,))
    return result


def main() -> None:
    options = parse_options()
    seeds = (TUNING_SEEDS if options.tuning else SCORING_SEEDS)[: options.count]
    scored: dict[str, list[Score]] = {}
    with ProcessPoolExecutor(options.jobs) as processes:
        for name, group in groups(seeds).items():
            if options.only and options.only not in name:
                continue
            scored[name] = list(processes.map(score, group, chunksize=20))
            print(row(name, scored[name]), flush=True)
            if options.show:
                show(scored[name])
    if options.write_docs:
        docs.write_tables(scored, seeds)
    sys.exit(0 if targets_are_met(scored) else 1)


def row(name: str, scores: Sequence[Score]) -> str:
    if scores[0].case.planted is None:
        sure, likely = ([s.certainty == grade for s in scores] for grade in ("sure", "likely"))
        return f"{name:32} false sure {rate(sure)}, false likely {rate(likely)}"
    right, causes = rate(s.right for s in scores), rate(s.right_cause for s in scores if s.right)
    surely, wrong = sum(s.right and s.certainty == "sure" for s in scores), sum(s.wrong for s in scores)
    return f"{name:32} named {right}, {surely} surely; cause {causes}; {wrong} wrong"


def targets_are_met(scored: dict[str, list[Score]]) -> bool:
    """Return whether the rates of the runs of 3 to 6 steps, with all files, meet the targets."""
    counted = {name: group for name, group in scored.items() if group[0].case.steps > 2 and not group[0].case.missing}
    planted = [s for group in counted.values() for s in group if s.case.planted]
    clean = [group for group in counted.values() if not group[0].case.planted]
    return (
        sum(s.right for s in planted) >= 0.95 * len(planted)
        and sum(s.right_cause for s in planted) >= 0.90 * len(planted)
        and all(sum(s.certainty == "sure" for s in group) <= 0.01 * len(group) for group in clean)
        and all(sum(s.certainty == "likely" for s in group) <= 0.05 * len(group) for group in clean)
    )


def show(scores: Sequence[Score]) -> None:
    """Print the verdicts that are not right."""
    for s in scores:
        right = s.right_cause if s.case.planted else s.certainty is None
        if not right:
            print(f"  {s.case}\n    {s.certainty} {s.named} {s.cause}: {s.text}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuning", action="store_true", help="take tuning seeds")
    parser.add_argument("--count", type=int, default=COUNT, help="runs of each row without a defect")
    parser.add_argument("--only", metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--show", action="store_true", help="print the verdicts that are not right")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--write-docs", action="store_true", help=f"write the tables to {docs.FILE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
