"""How often what tracekit says of real processes is right: who is slow, why, and what mending it saves.

    python -m benchmarks.studies.real_jobs [--quick] [--kinds KIND ...] [--seeds N] [--first SEED] [--out FOLDER]
                                           [--json FILE] [--write-docs]

The probes run in pairs, with a planted defect and without. The saving that is predicted from the run with it is
compared with the difference of their median steps. The full study takes about 15 minutes on two cores, the quick one 2.

Recorded runs stay in FOLDER, if it is given. Runs that are there already are only analysed again.

95 % of the culprits and 90 % of the causes should be right. Half of the savings should be off by at most 5 %, and 90 %
by at most 15 %, or 1 % of the step if that is more. The exit code is 1 if a rate is lower, by its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.studies.documents import markdown
from benchmarks.studies.rates import wilson
from benchmarks.studies.real_jobs import tables
from benchmarks.studies.real_jobs.pairs import KINDS, Pair, pairs
from benchmarks.studies.real_jobs.runs import results_of
from benchmarks.studies.real_jobs.scoring import Score, score

_QUICK_KINDS, _FULL_SEEDS = 6, 3


def main() -> None:
    options = parse_options()
    kinds = options.kinds or list(KINDS)[: _QUICK_KINDS if options.quick else None]
    count = options.seeds or (1 if options.quick else _FULL_SEEDS)
    busy = os.getloadavg()[0]
    if busy > 1:
        print(f"other processes load this machine ({busy:.1f}): runs of a pair may differ by more than the defect")
    scores = []
    with tempfile.TemporaryDirectory() as temporary:
        for pair in pairs(kinds, range(options.first, options.first + count)):
            folder = Path(options.out or temporary) / f"{pair.kind} {pair.seed}".replace(" ", "-").replace(",", "")
            scores.append(score(pair, *results_of(pair, folder)))
            print_score(pair, scores[-1])
    print(f"\n{markdown(tables.table(scores))}\n\n{tables.summary(scores)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in scores], indent=1))
    if options.write_docs:
        tables.write_tables(scores)
    missed = missed_targets(scores)
    if missed:
        sys.exit(f"less often right than should be: {', '.join(missed)}")


def missed_targets(scores: Sequence[Score]) -> list[str]:
    """Return what was right less often than it should be, by more than chance explains."""
    rates = {
        "culprits": ([each.named for each in scores], 0.95),
        "causes": ([each.right_cause for each in scores], 0.9),
        "savings within 5 %": ([each.relative_error <= 0.05 for each in scores], 0.5),
        "savings close": ([each.is_close for each in scores], 0.9),
    }
    return [name for name, (each, target) in rates.items() if wilson(sum(each), len(each))[1] < target]


def print_score(pair: Pair, found: Score) -> None:
    verdict = "WRONG" if not found.named else "cause?" if not found.right_cause else found.certainty
    error_ms = (found.error_ns or 0) / 1e6
    predicted = "-" if found.predicted_ns is None else f"{found.predicted_ns / 1e6:.1f} +- {error_ms:.1f}"
    mark = "ok " if found.is_close else "OFF"
    print(
        f"{found.kind:37} {found.seed:2} x{pair.ranks} {verdict:6} {mark} predicted {predicted:12} measured "
        f"{found.measured_ns / 1e6:5.1f} of {found.step_ns / 1e6:5.1f} ms; {found.text[:90]}"
        + (f"; false {found.false_alarm} without" if found.false_alarm else ""),
        flush=True,
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"a pair of each of {_QUICK_KINDS} kinds")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), metavar="KIND", help="; ".join(KINDS))
    parser.add_argument("--seeds", type=int, help=f"pairs of each kind; else {_FULL_SEEDS}, or 1 with --quick")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--out", type=Path, help="folder of the recorded runs, kept")
    parser.add_argument("--json", type=Path, help="write every score to this file")
    parser.add_argument("--write-docs", action="store_true", help=f"write the tables to {tables.FILE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
