"""The runs whose values are guarded: recorded, public, of the field, of the gallery, simulated, damaged, made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu_jobs import Clocks, simulate
from benchmarks.studies.gpu_jobs.cases import GROUPS, Case
from tests.builders import TraceBuilder
from tests.damaged_runs.classes import CLASSES
from tests.damaged_runs.good_run import BAD, write_good_run
from tests.places import DATA, ROOT, field_cases

_SEEDS_OF_SUITE, _SEEDS = range(2, 7), range(2, 20)


@dataclass(frozen=True)
class ValueCase:
    """A run.

    Attributes:
        name: stable, with the source first.
        files: a folder or file that exists, or what writes a run into a folder.
        is_long: whether only `make test-all` looks at it.
        is_frozen: whether `frozen.json` has it; recordings that are not at hand everywhere are for comparing states.
    """

    name: str
    files: Path | Callable[[Path], object]
    is_long: bool = False
    is_frozen: bool = True

    @contextmanager
    def at_hand(self) -> Iterator[Path]:
        """Yield the path of the files, which are written into a temporary folder where they do not exist."""
        if isinstance(self.files, Path):
            yield self.files.resolve()
            return
        with TemporaryDirectory() as temporary:
            folder = Path(temporary).resolve() / "run"
            self.files(folder)
            yield folder


def cases(extra: Path | None = None) -> list[ValueCase]:
    """Return the cases in reach, and each file below `extra` as a run of one rank."""
    seed = DATA / "seed"
    data = [case for case in _folders("data", DATA) if case.files != seed]
    result = [*data, *_folders("seed", seed), *_public(), *_simulated(), *_damaged(), *_made()]
    result += [replace(case, is_frozen=False) for case in _folders("gallery", ROOT / "build" / "reports")]
    if extra is not None:
        files = sorted(path for path in extra.rglob("*") if path.is_file() and path.suffix in (".gz", ".json"))
        result += [ValueCase(f"extra/{path.relative_to(extra)}", path, is_frozen=False) for path in files]
    return result


def _folders(name: str, parent: Path) -> Iterator[ValueCase]:
    """Yield each folder below `parent` that holds traces, or windows of them."""
    for folder in sorted(parent.glob("*/")):
        if any(folder.rglob("*.json*")):
            yield ValueCase(f"{name}/{folder.name}", folder)


def _public() -> Iterator[ValueCase]:
    if "TRACEKIT_REAL_TRACES" not in os.environ:
        return
    traces = Path(os.environ["TRACEKIT_REAL_TRACES"])
    for name in ("dlrm_8xV100", "gloo_rank34_of_300", "two_of_128"):
        yield ValueCase(f"traces/{name}", traces / name)
    for path in sorted((traces / "single_rank").glob("*.json.gz")):
        yield ValueCase(f"traces/{path.name}", path)
    yield from _folders("h200_shared", traces / "h200_shared")
    cases = field_cases()
    for case in sorted(cases.glob("*/") if cases else ()):
        yield from _folders(f"field/{case.name}", case)


def _simulated() -> Iterator[ValueCase]:
    """Yield simulated jobs of each group, healthy (even seeds) and with a defect; some with clocks that differ."""
    for group in GROUPS:
        for seed in _SEEDS:
            yield ValueCase(f"job/{group}/{seed}", partial(_write_job, group, seed), seed not in _SEEDS_OF_SUITE)


def _write_job(group: str, seed: int, folder: Path) -> None:
    spec = Case(group, seed).spec()
    if seed % 6 in (0, 1):
        clocks = Clocks(offset_us=(0.0, 2500.0, -40.0, 700.0), drift_ppm=(0.0, -30.0, 25.0, 12.0))
        spec = replace(spec, ranks_per_host=2, clocks=clocks)
    simulate(spec).write(folder, compressed=False)


def _damaged() -> Iterator[ValueCase]:
    """Yield a run for each class of damage; the suite looks at those whose steps do not all count."""
    for name, of_class in CLASSES.items():
        if name != "gzip bomb":  # it takes long
            yield ValueCase(f"damaged/{name}", partial(_write_damaged, name), isinstance(of_class.bad_rank, str))


def _write_damaged(name: str, folder: Path) -> None:
    write_good_run(folder)
    CLASSES[name].write(folder / f"rank{BAD}.json")


def _made() -> Iterator[ValueCase]:
    yield ValueCase("made/two_windows", partial(_write_made, 2, 0))
    yield ValueCase("made/long_first_step", partial(_write_made, 1, 20_000))


def _write_made(windows: int, longer_us: int, folder: Path) -> None:
    """Write two GPU ranks of five steps a window, of which the first is longer."""
    for window in range(windows):
        for rank in range(2):
            name = f"rank{rank}.{1_000_000 + window}.pt.trace.json.gz"
            _trace(rank, window, longer_us).write(folder / name)


def _trace(rank: int, window: int, longer_us: int) -> TraceBuilder:
    """Return five steps of compute and an all-reduce, of which rank 1 computes longer."""
    trace = TraceBuilder(rank, 2)
    for k in range(5):
        step, at, wait = 10 * window + k, 100_000 * window + 10_000 * k, 0 if k else longer_us
        trace.step(step, at - wait, 10_000 + wait)
        trace.kernel("gemm", at + 200, 6_000 + 1_500 * rank, launched_at=at + 100)
        begin = at + 300 + 6_000 + 1_500 * rank
        trace.nccl("all_reduce", begin, at + 9_500 - begin, launched_at=at + 110, elements=1_000_000, Seq=step)
    return trace
