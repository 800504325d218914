"""Each way to train that has a probe, with and without a slow rank, by the probe and by plain torch.profiler.

    python -m benchmarks.studies.real_jobs.systems [--only NAME ...] [--healthy RUNS] [--out FOLDER] [--write-report]

Says which culprit, cause and saving are named, and by how much the step is longer than without the delay. With
`--healthy` each system trains so many times without a delay, and it is counted how often a rank is named.

A system takes half a minute on two cores, a healthy run ten seconds. Recorded runs stay in FOLDER, if it is given. Runs
that are there already are only analysed again: parts can be recorded one after the other, by `--only`, and all of them
be written to reports/seed_systems.md at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tracekit
from benchmarks.studies.documents import Row, between_marks, markdown
from benchmarks.studies.rates import rate
from benchmarks.studies.real_jobs.pairs import Pair
from benchmarks.studies.real_jobs.runs import record, results_of
from benchmarks.studies.real_jobs.scoring import Score, false_alarm, score
from tracekit.render.json_result import result_json

FILE = Path(__file__).parents[3] / "reports" / "seed_systems.md"
_STEPS = 10  # recorded
_DELAY_MS = 60  # several times what the median steps of two runs of a probe differ by
_ENVIRONMENT = {"TRACEKIT_STEPS": str(_STEPS)}


@dataclass(frozen=True, kw_only=True)
class System:
    """One way to train.

    Attributes:
        pair: the run with a slow rank, and the one without; with nothing planted it has healthy runs only.
        strategy: what it should be called; a job may have several.
        plain_strategy: the same where the trace of plain torch.profiler shows no difference from another.
        is_plain: whether plain torch.profiler can record its steps in the same way.
    """

    pair: Pair
    strategy: tuple[str, ...]
    plain_strategy: tuple[str, ...]
    is_plain: bool = True


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was said of a system; `plain` and `strategy` are of its recording by plain torch.profiler."""

    system: System
    score: Score
    plain: Score | None
    strategy: tuple[str, ...]


def _slow(
    name: str,
    probe: str,
    *strategy: str,
    planted: str = f"--slow-rank 1 --delay-ms {_DELAY_MS}",
    culprit: int | None = 1,
    causes: str = "compute",
    ranks: int = 2,
    options: str = "",
    removed: str = "",
    is_plain: bool = True,
    plain_strategy: str = "",
) -> System:
    """Return a system; options are separated by spaces. A `culprit` of None: all ranks have the defect."""
    steps = () if probe == "straggler" else ("--steps", str(_STEPS + 6))
    culprits = () if culprit is None else (culprit,)
    pair = Pair(
        kind=name,
        seed=0,
        probe=probe,
        ranks=ranks,
        culprits=culprits,
        causes=tuple(causes.split()),
        planted=tuple(planted.split()),
        removed=tuple(removed.split()),
        options=(*steps, *options.split()),
    )
    plain = (plain_strategy,) if plain_strategy else strategy
    return System(pair=pair, strategy=strategy, plain_strategy=plain, is_plain=is_plain)


def _late(cause: str) -> System:
    """Return DDP with a rank that is late for this cause."""
    planted, recorded = f"--cause {cause} --rank 1 --delay-ms {_DELAY_MS}", f"--recorded {_STEPS}"
    return _slow(
        f"DDP, {cause}", "straggler", "ddp", planted=planted, removed="--cause none", causes=cause, options=recorded
    )


def _stage(name: str, schedule: str, ranks: int = 3) -> System:
    """Return a pipeline whose stage 1 computes 4 ms longer in each part; without it, all take their share of these."""
    planted, removed = "--sleep-ms 8 --slow-stage 1 --slower-ms 4", f"--sleep-ms {8 + 4 / ranks:.2f}"
    options = f"--schedule {schedule}"
    return _slow(
        name, "pipeline", "pp", planted=planted, removed=removed, causes="imbalance", ranks=ranks, options=options
    )


_ALL = (
    *(_late(cause) for cause in ("compute", "more_work", "host", "data")),
    _slow("DDP, backward", "ddp", "ddp"),
    _slow("DDP with a communication hook", "ddp_settings", "ddp", options="--comm-hook fp16"),
    _slow("DDP by Accelerate", "accelerate_loop", "ddp", is_plain=False),
    _slow("DDP by Lightning", "lightning_trainer", "ddp", is_plain=False),
    _slow("DDP by the Trainer of transformers", "transformers_trainer", "ddp", is_plain=False),
    _slow("DDP, micro-batches and checkpointing", "phases", "ddp"),
    _slow(
        "DDP, checkpoints to disk",
        "checkpointing",
        "ddp",
        planted=f"--slow-disk-ms {_DELAY_MS}",
        culprit=0,
        causes="checkpoint",
        removed="--save-every 0",
    ),
    _slow("DDP, elastic", "elastic", "ddp"),
    _slow("DDP, compiled", "compiled", "ddp"),
    _slow("DDP, whole step compiled", "compiled", "ddp", options="--whole-step"),
    _slow("data parallel by hand", "manual_data_parallel", "manual_dp"),
    _slow("averages every second step", "manual_data_parallel", "local_sgd", options="--every 2"),
    _slow("FSDP1", "fsdp", "fsdp1", options="--fsdp 1"),
    _slow("FSDP2", "fsdp", "fsdp2"),
    _slow("ZeRO 1", "zero", "zero1", options="--stage 1"),
    _slow("ZeRO 2", "zero", "zero2", options="--stage 2", plain_strategy="zero1"),  # both reduce in buckets
    _slow("ZeRO 3", "zero", "zero3", options="--stage 3"),
    _slow("ZeroRedundancyOptimizer", "zero", "ddp", "zero1", options="--torch"),
    _slow("tensor parallel, DTensor", "tensor", "tp"),
    _slow("tensor parallel by hand", "tensor", "tp", options="--manual"),
    _slow("sequence parallel by hand", "tensor", "sp", "tp", options="--manual --sequence-parallel"),
    _slow("expert parallel", "expert", "ep"),
    _slow(
        "expert parallel, hot expert",
        "expert",
        "ep",
        planted="--hot-expert 1",
        causes="more_work expert_load",
        options="--sleep-us 160",
    ),
    _slow("Ulysses", "context", "cp", options="--method ulysses"),
    _slow("gathered keys", "context", "cp", options="--method gather"),
    _slow("ring attention", "ring_attention", "cp"),
    _stage("pipeline, 1F1B", "1f1b"),
    _stage("pipeline, GPipe", "gpipe"),
    _stage("pipeline by hand", "manual"),
    _stage("pipeline by hand, forward only", "manual-forward-only"),
    # Its ranks compute one at a time: what one has more of is no imbalance that moving layers would mend.
    _slow("layers split over ranks", "model_parallel", "pp", planted="", culprit=None, ranks=3),
    _slow(
        "mesh of dp and tp",
        "hybrid",
        "fsdp2",
        "tp",
        planted=f"--slow-rank 3 --delay-ms {_DELAY_MS}",
        culprit=3,
        ranks=4,
    ),
    _slow(
        "parameter server by RPC",
        "parameter_server",
        "rpc",
        planted="--slow-trainer 2 --delay-ms 100",
        culprit=2,
        causes="slow_compute",
        ranks=3,
        is_plain=False,
    ),
    _slow(
        "server by messages, slow worker",
        "server_by_messages",
        planted=f"--slow-worker 1 --delay-ms {_DELAY_MS}",
        causes="slow_compute",
        ranks=3,
    ),
    _slow(
        "server by messages, slow server",
        "server_by_messages",
        planted="--server-ms 30",
        culprit=0,
        causes="servers",
        ranks=3,
    ),
)
SYSTEMS = {system.pair.kind: system for system in _ALL}


def main() -> None:
    options = parse_options()
    if os.getloadavg()[0] > 1:
        print("other processes load this machine: delays are longer, and steps differ by more than the delay")
    systems = [SYSTEMS[name] for name in options.only or SYSTEMS]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.out or temporary)
        if options.healthy:
            name, lines = "healthy", healthy_table(systems, folder, options.healthy)
        else:
            name, lines = "systems", table([examine(system, folder) for system in systems if system.pair.planted])
    print(f"\n{markdown(lines)}")
    if options.write_report:
        FILE.write_text(between_marks(FILE.read_text(), {name: markdown(lines)}))


def examine(system: System, folder: Path) -> Found:
    """Record a system with and without its delay, by the probe and by plain torch.profiler, and return what is said."""
    pair, place = system.pair, _place(system, folder)
    found = score(pair, *results_of(pair, place / "probe", environment=_ENVIRONMENT))
    plain, strategy = None, ()
    if system.is_plain:
        results = results_of(pair, place / "plain", environment=_ENVIRONMENT, plain=True)
        plain, strategy = score(pair, *results), tuple(results[0]["run"]["strategies"])
    print(f"{pair.kind}: {found.text}", flush=True)
    return Found(system=system, score=found, plain=plain, strategy=strategy)


def healthy_table(systems: Sequence[System], folder: Path, runs: int) -> list[Row]:
    """Return how often a rank is named in so many runs without a delay, of each system that has runs of its own."""
    unlike = {(s.pair.probe, s.pair.ranks, s.pair.options, s.pair.removed): s for s in reversed(systems)}.values()
    alarms = {system.pair.kind: [_alarm(system, folder, run) for run in range(runs)] for system in reversed(unlike)}
    rows = [(name, str(len(each)), *_counts(each)) for name, each in alarms.items()]
    together = [alarm for each in alarms.values() for alarm in each]
    named = rate([alarm is not None for alarm in together])
    heading = ("system", "healthy runs", "rank named as sure", "as likely")
    return [heading, *rows, ("all", str(len(together)), *_counts(together)), (f"named: {named}", "", "", "")]


def _counts(alarms: Sequence[str | None]) -> tuple[str, str]:
    return str(alarms.count("sure")), str(alarms.count("likely"))


def _alarm(system: System, folder: Path, run: int) -> str | None:
    pair, place = system.pair, _place(system, folder) / "healthy" / str(run)
    if not place.exists():
        record(pair.probe, (*pair.options, *pair.removed), place, ranks=pair.ranks, environment=_ENVIRONMENT)
    result: Mapping[str, Any] = json.loads(result_json(tracekit.analyze(place)))
    alarm = false_alarm(result)
    print(f"{pair.kind} {run}: {alarm or 'nobody is named'}", flush=True)
    return alarm


def _place(system: System, folder: Path) -> Path:
    return folder / system.pair.kind.replace(" ", "-").replace(",", "")


def table(found: Sequence[Found]) -> list[Row]:
    """Return a row for each system."""
    heading = (
        *("system", "ranks", "planted", "culprit named", "cause named", "saving in ms", "step longer by ms"),
        *("within 15 %", "plain profiler: strategy", "culprit named"),
    )
    return [heading, *(_row(each) for each in found)]


def _row(found: Found) -> Row:
    said, plain, pair = found.score, found.plain, found.system.pair
    is_right = set(found.system.plain_strategy) <= set(found.strategy)
    strategy = ", ".join(found.strategy) or "none"
    return (
        pair.kind,
        str(pair.ranks),
        " ".join(pair.planted),
        _yes(said.named),
        _yes(said.right_cause),
        "-" if said.predicted_ns is None else f"{said.predicted_ns / 1e6:.1f}",
        f"{said.measured_ns / 1e6:.1f}",
        "-" if said.predicted_ns is None else _yes(said.is_close),
        "" if plain is None else strategy if is_right else f"{strategy}, not {', '.join(found.system.plain_strategy)}",
        "" if plain is None else _yes(plain.named),
    )


def _yes(right: bool) -> str:
    return "yes" if right else "NO"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), metavar="NAME", help="; ".join(SYSTEMS))
    parser.add_argument("--healthy", type=int, default=0, metavar="RUNS", help="count who is named without a delay")
    parser.add_argument("--out", type=Path, help="folder of the recorded runs, kept")
    parser.add_argument("--write-report", action="store_true", help=f"write the table to reports/{FILE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
