"""Whether a run is slower than one or several baseline runs of the same job, and what the change consists of."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.comparison import tables
from tracekit.analysis.comparison.cause_changes import Basis, cause_changes
from tracekit.analysis.comparison.comparability import find_differences, why_incomparable
from tracekit.analysis.comparison.exploration import explored_changes
from tracekit.analysis.comparison.step_verdict import (
    DEFAULT_MARGIN,
    DEFAULT_RUN_NOISE,
    ChangeEstimate,
    StepVerdict,
    estimate_change,
    judge,
)
from tracekit.analysis.report import Report, analyze
from tracekit.analysis.table import Frame, tables_of
from tracekit.errors import InputError, UsageError
from tracekit.model.events import Float64
from tracekit.model.quantities import percent
from tracekit.model.run import Run, short_repr
from tracekit.read.cache.store import CacheChoice

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SECTIONS_READ", "Comparison", "Source", "compare", "steps_ns"]

Source = str | os.PathLike[str] | Run | Report
"""The path of a run's folder or file, a loaded run, or its report."""

_SHOWN_BASELINES = 3
SECTIONS_READ = ("breakdown", "configuration", "memory", "critical_path", "diagnosis", "kernels")


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison:
    """A comparison of runs.

    Attributes:
        baselines: the runs of the baseline.
        candidate: the run that is compared with them.
        change: the change of the typical length of a step.
        verdict: what that means.
        basis: what `causes` are from.
        causes: rows of tables.CAUSE_CHANGES; they sum to the change of the typical length.
        explored: rows of tables.EXPLORED_CHANGES.
        differences: rows of tables.RUN_DIFFERENCES.
    """

    baselines: tuple[Run, ...]
    candidate: Run
    change: ChangeEstimate
    verdict: StepVerdict
    basis: Basis
    causes: Frame = Frame(tables.CAUSE_CHANGES)
    explored: Frame = Frame(tables.EXPLORED_CHANGES)
    differences: Frame = Frame(tables.RUN_DIFFERENCES)

    @property
    def baseline_ns(self) -> int:
        """Return the typical length of a step of the baseline."""
        return round(self.change.baseline)

    @property
    def candidate_ns(self) -> int:
        """Return the typical length of a step of the candidate."""
        return round(self.change.candidate)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Return `causes`, `explored` and `differences` by the names of their tables. `attrs` describes the columns."""
        return {table.name: table.frame for table in tables_of(self)}

    def summary(self) -> str:
        """Return the verdict, what the change consists of and where to look, as one screen of text."""
        text: str = _renderer("outputs").comparison_text(self, width=100, color=False)
        return text

    def to_json(self) -> str:
        """Return the comparison as JSON, as `tracekit compare --json` prints it."""
        text: str = _renderer("document").comparison_json(self)
        return text

    def to_html(self) -> str:
        """Return the comparison as one HTML page that opens offline."""
        text: str = _renderer("document").comparison_html(self)
        return text

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the comparison as its name says: .html, .json, .md or .txt.

        Raises UsageError for another name. Raises OutputError when `path` exists and `force` is False, or it cannot be
        written.
        """
        _renderer("outputs").write_comparison(self, Path(path), force=force)

    def __repr__(self) -> str:
        names = ", ".join(short_repr(run.path) for run in self.baselines[:_SHOWN_BASELINES])
        more = len(self.baselines) - _SHOWN_BASELINES
        against = f"{names} and {more} more" if more > 0 else names
        judgement = f"{self.verdict.judgement}, {percent(self.change.ratio - 1, 1, '+')}"
        return f"<tracekit.Comparison of {short_repr(self.candidate.path)} with {against}: {judgement}>"

    def _repr_html_(self) -> str:
        text: str = _renderer("outputs").comparison_screen(self)
        return text


def _renderer(module: str) -> Any:
    """Return a module of `tracekit.render.comparison`. By name: the analysis imports no layer above it."""
    return importlib.import_module(f"tracekit.render.comparison.{module}")


def compare(
    baselines: Source | Sequence[Source],
    candidate: Source,
    *,
    margin: float = DEFAULT_MARGIN,
    run_noise: float = DEFAULT_RUN_NOISE,
    cache: CacheChoice = False,
) -> Comparison:
    """Compare a run with one or several baseline runs of the same job.

    Each is a path, a loaded run, or a report, which should have the sections `SECTIONS_READ`. margin: changes of the
    step by less than this share do not matter. run_noise: the share by which two runs of one job are taken to differ
    where fewer than three baseline runs show it. `cache` is passed to `load`.

    Raises InputError with the reason if the runs cannot be compared, UsageError for shares that are not between 0 and 1
    or without a baseline, and whatever `load` raises.
    """
    for name, share in (("margin", margin), ("run_noise", run_noise)):
        if not 0 < share < 1:
            raise UsageError(f"{name}={share} is not a share between 0 and 1", hint="0.03 is 3 %")
    sources = [baselines] if isinstance(baselines, str | os.PathLike | Run | Report) else list(baselines)
    if not sources:
        raise UsageError("there is no baseline", hint="give the run to compare with, or a list of runs")
    *before, after = [_report(source, cache) for source in (*sources, candidate)]
    runs = tuple(report.run for report in before)
    for run in runs:
        if reason := why_incomparable(run, after.run):
            raise InputError(
                f"these runs cannot be compared: {reason}", hint="record the same job, on as many ranks, and compare it"
            )
    change = estimate_change([steps_ns(run) for run in runs], steps_ns(after.run), run_noise=run_noise)
    basis, causes = cause_changes(before, after, round(change.baseline), round(change.candidate))
    return Comparison(
        baselines=runs,
        candidate=after.run,
        change=change,
        verdict=judge(change, margin),
        basis=basis,
        causes=causes,
        explored=explored_changes(before, after, change),
        differences=find_differences(runs, after.run),
    )


def _report(source: Source, cache: CacheChoice) -> Report:
    return source if isinstance(source, Report) else analyze(source, only=SECTIONS_READ, cache=cache)


def steps_ns(run: Run) -> Float64:
    """Return the lengths of the job's steps in order, at least 1, float64 [n]."""
    return np.array([max(step_ns, 1) for step_ns in run.step_lengths_ns.values()], dtype=np.float64)
