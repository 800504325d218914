"""How well the effect of another `bucket_cap_mb` of DDP is predicted, compared with training with it.

    python -m benchmarks.studies.bucket_whatif [--present 4] [--others 10 20 64] [--rounds 3] [--ranks 2] [--width 1024]
                                       [--out FOLDER]

`bucket_whatif_job.py` trains with sleeps for compute, alternating between the present bucket size and three others. The
predictions come from the recording with the present size. The table compares them with what was measured, for each
size: the exposed time of the reductions, as the median over steps of the mean over ranks, and of several rounds the
median. The exit code is 1 if a prediction is off by more than 15 %, or if the predicted best size was not the best.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import tracekit
from tracekit.explain.ddp.bucket_whatif import bucket_whatif
from tracekit.explain.ddp.buckets import buckets
from tracekit.explain.section import Unavailable
from tracekit.model.table import records

ROOT = Path(__file__).parents[2]
TOLERANCE = 0.15
STEPS, WINDOWS = 4, 5  # 20 steps of each limit


def main() -> int:
    options = _options()
    folder = Path(options.out or tempfile.mkdtemp(prefix="bucket_whatif-"))
    caps = [options.present, *options.others]
    predicted: dict[float, list[float]] = defaultdict(list)
    measured: dict[float, list[float]] = defaultdict(list)
    for number in range(options.rounds):
        out = folder / f"round-{number}"
        _train(out, caps, options)
        for cap in caps:
            run = tracekit.load(out / f"cap-{cap:g}")
            measured[cap].append(_exposed_ms(run))
            if cap == options.present:
                for other in caps:
                    predicted[other].append(_predicted_ms(run, other))
    print(f"{'cap':>6} {'predicted':>10} {'measured':>10} {'off':>7}   each round (ms): predicted | measured")
    worst = 0.0
    for cap in caps:
        guess, truth = statistics.median(predicted[cap]), statistics.median(measured[cap])
        off = guess / truth - 1
        worst = max(worst, abs(off))
        each = " ".join(f"{ms:.1f}" for ms in predicted[cap]) + " | " + " ".join(f"{ms:.1f}" for ms in measured[cap])
        print(f"{cap:6g} {guess:10.2f} {truth:10.2f} {off:+7.1%}   {each}")
    picked = min(caps, key=lambda cap: statistics.median(predicted[cap]))
    best = min(caps, key=lambda cap: statistics.median(measured[cap]))
    print(f"picked {picked:g}, best {best:g}; runs in {folder}")
    return int(worst > TOLERANCE or picked != best)


def _train(out: Path, caps: Sequence[float], options: argparse.Namespace) -> None:
    if out.exists():
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.ranks)]
    command += [str(Path(__file__).with_name("bucket_whatif_job.py")), str(out), "--caps", *map(str, caps)]
    command += ["--width", str(options.width), "--steps", str(STEPS), "--windows", str(WINDOWS)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    given = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": path}
    done = subprocess.run(command, env=os.environ | given, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)


def _exposed_ms(run: tracekit.Run) -> float:
    by_step: dict[int, float] = defaultdict(float)
    for row in records(buckets(run).times):
        by_step[row["step"]] += row["added_ns"] / 1e6 / len(run.ranks)
    return statistics.median(by_step.values())


def _predicted_ms(run: tracekit.Run, cap: float) -> float:
    outcome = bucket_whatif(run, caps_mb=(cap,))
    assert not isinstance(outcome, Unavailable), outcome.reason
    (row,) = [row for row in outcome.caps if row.bucket_cap_mb == cap]
    return row.uncovered_ns / 1e6


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--present", type=float, default=4.0)
    parser.add_argument("--others", type=float, nargs="+", default=[10.0, 20.0, 64.0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--out")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
