"""How often the verdict on stragglers is right, in runs with a planted straggler of every cause and in runs without.

    python -m benchmarks.studies.score_stragglers [--seeds 10] [--clean 20] [--noisy 10] [--out FOLDER] [--json FILE]

`probes/straggler.py` trains on 4 processes, for the causes compute, more work, data loading and host. Runs with a slow
link or a host-bound GPU are generated (`tests/planted.py`). A seed chooses the rank, the delay (5 to 30 % of the step)
and the jitter (up to 5 %).

The table states how many ranks and causes were named correctly. The exit code is 1 if a rank is wrong, if more than a
tenth of the causes are wrong, or if a rank is named in a run without a straggler. `noisy` runs vary by more than the
planted delay: there, naming no rank is as good as naming the right one.

Recorded runs stay in FOLDER. Runs that are there already are only analysed again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import tracekit
from tests.planted import plant
from tracekit.analysis.stragglers.stragglers import Verdict

ROOT = Path(__file__).parents[2]
RECORDED = ("compute", "more_work", "data", "host")
GENERATED = ("link", "host")
RANKS, STEP_MS = 4, 90.0  # of probes/straggler.py


@dataclass(frozen=True)
class ScoredRun:
    kind: str
    seed: int
    cause: str
    rank: int  # of a link, one of its pair
    delay_share: float
    jitter: float
    named: tuple[int, ...]
    named_cause: str | None
    caused_share: float
    text: str

    @property
    def right_rank(self) -> bool:
        if self.cause == "none":
            return not self.named
        pair = (self.rank // 2 * 2, self.rank // 2 * 2 + 1)
        return self.named == (pair if self.cause == "link" else (self.rank,))

    @property
    def right_cause(self) -> bool:
        return self.right_rank and (self.cause == "none" or self.named_cause == self.cause)

    @property
    def abstained(self) -> bool:
        return not self.named


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(options.out or temporary)
        scored = []
        for one in runs(options, out):
            scored.append(one)
            mark = "ok" if one.right_cause else "abstained" if one.abstained else "WRONG"
            print(
                f"{one.kind:19} seed {one.seed:2} rank {one.rank} {one.delay_share:5.1%} {mark:9} {one.text}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in scored], indent=2))
    sys.exit(0 if report(scored) else 1)


def runs(options: argparse.Namespace, out: Path) -> Iterator[ScoredRun]:
    for cause in RECORDED:
        for seed in range(options.seeds):
            rng = random.Random(f"{cause} {seed}")
            share, jitter = rng.uniform(0.05, 0.30), rng.uniform(0.0, 0.05)
            yield score_recorded(f"{cause}, recorded", seed, cause, rng.randrange(RANKS), share, jitter, out)
    for cause in GENERATED:
        for seed in range(options.seeds):
            yield score_generated(f"{cause}, generated", seed, cause, out)
    for seed in range(options.noisy):
        rng = random.Random(f"noisy {seed}")
        cause, share = rng.choice(RECORDED), rng.uniform(0.02, 0.05)
        yield score_recorded("noisy", seed, cause, rng.randrange(RANKS), share, 0.30, out)
    for seed in range(options.clean):
        jitter = random.Random(f"none {seed}").uniform(0.0, 0.05)
        yield score_recorded("none, recorded", seed, "none", 0, 0.0, jitter, out)


def score_recorded(kind: str, seed: int, cause: str, rank: int, share: float, jitter: float, out: Path) -> ScoredRun:
    folder = out / kind.replace(", ", "-") / str(seed)
    if not folder.exists():
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        command += [str(ROOT / "probes/straggler.py"), "--out", str(folder), "--sleep-compute", "--cause", cause]
        command += ["--rank", str(rank), "--delay-ms", str(share * STEP_MS), "--jitter", str(jitter)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        job = subprocess.run([*command, "--seed", str(seed)], env=environment, capture_output=True, text=True)
        if job.returncode:
            sys.exit(f"{folder}: {job.stderr}")
    return _score(kind, seed, cause, rank, share, jitter, folder)


def score_generated(kind: str, seed: int, cause: str, out: Path) -> ScoredRun:
    planted = plant(out / kind.replace(", ", "-") / str(seed), cause, seed)  # type: ignore[arg-type]
    return _score(kind, seed, cause, planted.rank, planted.delay_share, planted.jitter, planted.folder)


def _score(kind: str, seed: int, cause: str, rank: int, share: float, jitter: float, folder: Path) -> ScoredRun:
    stragglers = tracekit.analyze(folder, only=["stragglers"]).stragglers
    assert stragglers is not None
    verdict = stragglers.verdict
    return ScoredRun(
        kind=kind,
        seed=seed,
        cause=cause,
        rank=rank,
        delay_share=share,
        jitter=jitter,
        named=_named(verdict),
        named_cause=verdict.cause,
        caused_share=verdict.share_of_step,
        text=verdict.text,
    )


def _named(verdict: Verdict) -> tuple[int, ...]:
    """Return the rank, or the ranks of the link, that the verdict names."""
    if verdict.link is not None:
        return verdict.link.ranks
    return () if verdict.rank is None else (verdict.rank,)


def report(scored: list[ScoredRun]) -> bool:
    """Print the table; return whether all targets are met."""
    print(f"\n{'':19} {'runs':>5} {'right rank':>11} {'right cause':>12} {'abstained':>10}")
    for kind in dict.fromkeys(one.kind for one in scored):
        own = [one for one in scored if one.kind == kind]
        figures = (sum(one.right_rank for one in own), sum(one.right_cause for one in own))
        print(f"{kind:19} {len(own):5} {figures[0]:11} {figures[1]:12} {sum(one.abstained for one in own):10}")
    planted = [one for one in scored if one.cause != "none" and one.kind != "noisy"]
    return (
        all(one.right_rank for one in scored if one.kind != "noisy")
        and all(one.right_rank or one.abstained for one in scored)
        and sum(one.right_cause for one in planted) >= 0.9 * len(planted)
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="runs of each cause")
    parser.add_argument("--clean", type=int, default=20, help="runs without a straggler")
    parser.add_argument("--noisy", type=int, default=10, help="runs whose noise exceeds what is planted")
    parser.add_argument("--out", help="folder of the recorded runs, kept")
    parser.add_argument("--json", type=Path, help="write every verdict to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
