"""How often what tracekit says of a GPU job is right, on simulated jobs whose truth is known.

    python -m benchmarks.studies.gpu_jobs [--quick] [--tuning] [--groups GROUP ...] [--count N] [--jobs N]
                                          [--json FILE] [--write-docs]
    python -m benchmarks.studies.gpu_jobs --show GROUP SEED [--write FOLDER]

The full study takes up to 40 minutes and reads one job in ten from files; the quick one takes up to 2 minutes and reads
none. Jobs have scoring seeds, unless `--tuning` takes those to look at while an analysis is mended.

`--show` prints the wrong checks of one job, with the numbers seen and expected. `--write` keeps the traces of that job.
The exit code is 1 if less than 97 % of the checks of a group are right.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.gpu_jobs import SimulatedJob, simulate
from benchmarks.studies.documents import markdown
from benchmarks.studies.gpu_jobs import docs
from benchmarks.studies.gpu_jobs.cases import GROUPS, SCORING_SEEDS, TUNING_SEEDS, Case, Purpose, cases
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.scoring import Score, check_all, scores
from benchmarks.studies.gpu_jobs.tables import table_by_check, table_by_defect, table_by_group

QUICK, FULL = 12, 200  # jobs of each group
TARGET = 0.97  # of the checks of each group


def main() -> None:
    options = parse_options()
    if options.show:
        group, seed = options.show
        show(Case(group, int(seed)), options.write)
        return
    purpose: Purpose = "tuning" if options.tuning else "scoring"
    seeds = TUNING_SEEDS if options.tuning else SCORING_SEEDS
    count = options.count or (QUICK if options.quick else FULL)
    chosen = cases(purpose, options.groups or list(GROUPS), count)
    print(f"{len(chosen)} jobs with {purpose} seeds {seeds[0]} to {seeds[count - 1]}", flush=True)
    began, found = time.monotonic(), []
    for case, of_case in zip(chosen, scores(chosen, files=not options.quick, jobs=options.jobs), strict=True):
        found += of_case
        if options.verbose:
            print_case(case, of_case)
    if options.json:
        options.json.write_text(json.dumps([asdict(score) for score in found], indent=1))
    for table in (table_by_check, table_by_defect, table_by_group):
        print(f"\n{markdown(table(found))}")
    print(f"\n{time.monotonic() - began:.0f} s")
    if options.write_docs:
        docs.write_tables(found, purpose, seeds[:count])
    shares = {
        group: sum(s.verdict == "right" for s in found if s.group == group) / sum(s.group == group for s in found)
        for group in {score.group for score in found}
    }
    sys.exit(0 if min(shares.values()) >= TARGET else 1)


def show(case: Case, folder: Path | None) -> None:
    """Print the checks of a job that are not right, and what the job is."""
    job = simulate(case.spec())
    print(f"{case.group} {case.seed}: {job.spec}")
    print(f"step {job.truth.mean_step_ns / 1e6:.3f} ms, without the defect {job.truth.saving_ns / 1e6:.3f} ms less\n")
    if folder is not None:
        print(f"traces: {job.write(folder)}\n")
    outcomes = list(check_all(Evidence(job, SimulatedJob.report)))
    for topic, check, outcome in outcomes:
        if outcome.verdict != "right":
            meaning = (check.__doc__ or "").splitlines()[0]
            print(f"{outcome.verdict:9} {topic}: {check.__name__}: {meaning}")
            print(f"{'':9} seen:     {outcome.seen}\n{'':9} expected: {outcome.expected}")
    print(f"\n{sum(outcome.verdict == 'right' for *_, outcome in outcomes)} of {len(outcomes)} checks right")


def print_case(case: Case, of_case: list[Score]) -> None:
    wrong = [score.check for score in of_case if score.verdict != "right"]
    right = len(of_case) - len(wrong)
    print(f"{case.group:20} {case.seed:6} {case.cause or 'healthy':13} {right:3}/{len(of_case):3} {' '.join(wrong)}")
    sys.stdout.flush()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} jobs of each group instead of {FULL}")
    parser.add_argument("--tuning", action="store_true", help="take tuning seeds")
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--count", type=int, help="jobs of each group")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    parser.add_argument("--verbose", action="store_true", help="print a line for each job")
    parser.add_argument("--write-docs", action="store_true", help=f"write the tables to {docs.FILE.name}")
    parser.add_argument("--show", nargs=2, metavar=("GROUP", "SEED"), help="print the wrong checks of one job")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="with --show: keep the job's traces")
    return parser.parse_args()


if __name__ == "__main__":
    main()
