"""The runs whose values are guarded: recorded, public, of the field, simulated, and two that were made by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.studies.gpu_jobs.cases import GROUPS, Case
from tests.builders import TraceBuilder
from tests.gpu_jobs import Clocks, simulate
from tracekit.analysis.load import load
from tracekit.analysis.report import Report, analyze

_DATA = Path(__file__).parents[1] / "data"
_SEEDS_OF_SUITE, _SEEDS = (3, 4), range(2, 20)

__all__ = ["ValueCase", "cases", "load_folder"]


@dataclass(frozen=True)
class ValueCase:
    """A run.

    Attributes:
        name: stable, with the source first.
        folder: of its files; None for a run that is made in memory.
        report: analyses it, in this process, without a cache.
        in_suite: whether each run of the tests looks at it.
    """

    name: str
    folder: Path | None
    report: Callable[[], Report]
    in_suite: bool = True


def load_folder(folder: Path) -> Report:
    return analyze(load(folder))


def cases(extra: Path | None = None) -> list[ValueCase]:
    """Return the cases in reach, and each file below `extra` as a run of one rank."""
    result = [*_folders("data", _DATA), *_public(), *_simulated(), *_made()]
    if extra is not None:
        files = sorted(path for path in extra.rglob("*") if path.is_file() and path.suffix in (".gz", ".json"))
        result += [_of_folder(f"extra/{path.relative_to(extra)}", path, in_suite=False) for path in files]
    return result


def _of_folder(name: str, folder: Path, *, in_suite: bool = True) -> ValueCase:
    return ValueCase(name, folder, lambda: load_folder(folder), in_suite)


def _folders(name: str, parent: Path) -> Iterator[ValueCase]:
    """Yield each folder below `parent` that holds traces, or windows of them."""
    if parent.is_dir():
        for folder in sorted(path for path in parent.iterdir() if path.is_dir()):
            if any(folder.rglob("*.json.gz")) or any(folder.rglob("*.json")):
                yield _of_folder(f"{name}/{folder.name}", folder)


def _public() -> Iterator[ValueCase]:
    if "TRACEKIT_REAL_TRACES" not in os.environ:
        return
    traces = Path(os.environ["TRACEKIT_REAL_TRACES"])
    for name in ("dlrm_8xV100", "gloo_rank34_of_300", "two_of_128"):
        yield _of_folder(f"traces/{name}", traces / name)
    for path in sorted((traces / "single_rank").glob("*.json.gz")):
        yield _of_folder(f"traces/{path.name}", path)
    yield from _folders("h200_shared", traces / "h200_shared")
    for case in sorted((traces.parent / "field_cases").glob("*/")):
        yield from _folders(f"field/{case.name}", case)


def _simulated() -> Iterator[ValueCase]:
    """Yield simulated jobs of each group, healthy (even seeds) and with a defect; some with clocks that differ."""
    for group in GROUPS:
        for seed in _SEEDS:
            spec = Case(group, seed).spec()
            if seed % 6 in (0, 1):
                clocks = Clocks(offset_us=(0.0, 2500.0, -40.0, 700.0), drift_ppm=(0.0, -30.0, 25.0, 12.0))
                spec = replace(spec, ranks_per_host=2, clocks=clocks)
            yield ValueCase(
                f"job/{group}/{seed}", None, lambda spec=spec: simulate(spec).report(), seed in _SEEDS_OF_SUITE
            )


def _made() -> Iterator[ValueCase]:
    yield ValueCase("made/two_windows", None, lambda: _report_of(windows=2))
    yield ValueCase("made/long_first_step", None, lambda: _report_of(longer_us=20_000))


def _report_of(*, windows: int = 1, longer_us: int = 0) -> Report:
    """Analyse two GPU ranks of five steps a window, of which the first is longer."""
    with TemporaryDirectory() as folder:
        for window in range(windows):
            for rank in range(2):
                name = f"rank{rank}.{1_000_000 + window}.pt.trace.json.gz"
                _trace(rank, window, longer_us).write(Path(folder) / name)
        return load_folder(Path(folder))


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
