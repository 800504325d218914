"""How often a pipeline in which nothing is wrong is told that something is, schedule by schedule.

    python -m benchmarks.studies.healthy_pipelines [--runs N] [--schedules NAME ...] [--out FOLDER] [--json FILE]

`probes/pipeline.py` trains on four processes, whose stages all take equally long. True are the bubbles of the schedule,
and that nothing stands out. False is every finding that names a rank, a stage or a link, or another cause of lost time.
The table shows what the bubbles have of uneven stages, too: the last stage computes the loss, and on a loaded machine
ranks do not get equal parts of it. A run takes about 15 seconds on two cores that do nothing else; `make studies`
records one of each schedule.

Recorded runs stay in FOLDER, if it is given. Runs that are there already are only analysed again. The exit code is 1 if
a finding is false.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tracekit
from benchmarks.studies.documents import Row, markdown
from benchmarks.studies.real_jobs.runs import record
from tracekit.render.json_result import result_json

SCHEDULES = (
    *("gpipe", "1f1b", "interleaved1f1b", "loopedbfs"),
    *("interleavedzerobubble", "zbv", "dualpipev", "manual"),
)
_RANKS, _STEPS = 4, 10
_TRUE_CAUSES = {"bubble", None}  # None: nothing stands out


@dataclass(frozen=True, kw_only=True)
class HealthyRun:
    """What the report says of one run.

    Attributes:
        schedule: the one that was run.
        step_ms: the median step.
        bubble_ratio: bubbles as a share of the pipeline's time.
        ideal_ratio: the least share for this order.
        uneven_ratio: what uneven stages are said to add to the bubbles, as a share of the pipeline's time.
        false: the texts of false findings.
    """

    schedule: str
    step_ms: float
    bubble_ratio: float
    ideal_ratio: float
    uneven_ratio: float
    false: tuple[str, ...]


def main() -> None:
    options = parse_options()
    if os.getloadavg()[0] > 1:
        print("other processes load this machine: ranks wait for processors, and bubbles exceed the ideal ones")
    runs = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(options.runs):
            for schedule in options.schedules:
                folder = Path(options.out or temporary) / f"{schedule}-{number}"
                if not folder.exists():
                    record("pipeline", ("--schedule", schedule, "--steps", str(_STEPS)), folder, ranks=_RANKS)
                runs.append(judge(schedule, json.loads(result_json(tracekit.analyze(folder)))))
                print(f"{schedule} {number}: {'; '.join(runs[-1].false) or 'nothing false'}", flush=True)
    print(f"\n{markdown(table(runs))}")
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    if any(run.false for run in runs):
        sys.exit("a pipeline in which nothing is wrong is told that something is")


def judge(schedule: str, result: Mapping[str, Any]) -> HealthyRun:
    """Return what `analyze --json` says of a run in which nothing is wrong."""
    pipeline, causes_ns = result["pipeline"], result["pipeline"]["causes"]
    false = [f["text"] for f in result["findings"] if not _is_true(f)]
    if pipeline["uneven_stage"] is not None:
        false.append("a stage is uneven")
    if pipeline["schedule"] != schedule:
        false.append(f"the schedule is {pipeline['schedule']}")
    return HealthyRun(
        schedule=schedule,
        step_ms=result["run"]["step_ns"]["median"] / 1e6,
        bubble_ratio=pipeline["bubble_ratio"],
        ideal_ratio=pipeline["ideal_bubble_ratio"],
        uneven_ratio=pipeline["bubble_ratio"] * causes_ns["imbalance_ns"] / sum(causes_ns.values()),
        false=tuple(false),
    )


def _is_true(finding: Mapping[str, Any]) -> bool:
    return not finding["ranks"] and finding["cause"] in _TRUE_CAUSES


def table(runs: Sequence[HealthyRun]) -> list[Row]:
    """Return a row for each schedule, and one for all of them."""
    heading = (
        "schedule",
        "runs",
        "with a false finding",
        "median step in ms",
        "median bubble",
        "ideal",
        "uneven stages",
    )
    schedules = dict.fromkeys(run.schedule for run in runs)
    rows = [_row(schedule, [run for run in runs if run.schedule == schedule]) for schedule in schedules]
    return [heading, *rows, ("all", str(len(runs)), str(sum(bool(run.false) for run in runs)), "", "", "", "")]


def _row(schedule: str, runs: Sequence[HealthyRun]) -> Row:
    return (
        schedule,
        str(len(runs)),
        str(sum(bool(run.false) for run in runs)),
        f"{statistics.median(run.step_ms for run in runs):.0f}",
        f"{statistics.median(run.bubble_ratio for run in runs):.1%}",
        f"{statistics.median(run.ideal_ratio for run in runs):.1%}",
        f"{statistics.median(run.uneven_ratio for run in runs):.1%}",
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1, help="of each schedule")
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=SCHEDULES, metavar="NAME")
    parser.add_argument("--out", type=Path, help="folder of the recorded runs, kept")
    parser.add_argument("--json", type=Path, help="write what was found in every run to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
