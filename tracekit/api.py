"""What a program and a notebook use: `load`, `analyze` and `compare`, whose results can be shown and written.

`analysis` gives plain results. Here they get the methods that need `render`. Each method imports its renderer when it
is called: most programs use one or two.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tracekit.comparison import comparison as comparing
from tracekit.loading import load as loading
from tracekit.model import run as runs
from tracekit.report import report as reporting

if TYPE_CHECKING:
    from tracekit.render.notebook.plots import Plots

P = ParamSpec("P")
T = TypeVar("T")


class Run(runs.Run):
    """All ranks of a run that are there, as `load` returns them."""

    def _repr_html_(self) -> str:
        from tracekit.render.notebook.screen import run_html

        return run_html(self)


class Report(reporting.Report):
    """The results of an analysis, as `analyze` returns them: `tables`, `findings`, and one result a section."""

    @property
    def plot(self) -> Plots:
        """Return the pictures of the sections: `report.plot.breakdown()` draws one with matplotlib.

        Each takes `ax`, matplotlib's axes to draw into, and returns the axes. Raises UsageError without matplotlib.
        """
        from tracekit.render.notebook.plots import Plots

        return Plots(self)

    def summary(self) -> str:
        """Return the answer in one screen of text: what slows the step, what to do, a bar a rank."""
        from tracekit.render.terminal import terminal_text

        return terminal_text(self, extent="answer")

    def to_json(self) -> str:
        """Return the result as JSON, as `tracekit analyze --json` prints it."""
        from tracekit.render.json_result import result_json

        return result_json(self)

    def metrics(self) -> dict[str, float]:
        """Return the numbers of the run by name, with units in the names, for trackers of experiments.

        They are the length of a step, the shares of it, MFU, memory, and what doing something about each finding saves.
        What is not known is left out.
        """
        from tracekit.render.metrics import flat_metrics

        return flat_metrics(self)

    def to_html(self) -> str:
        """Return the report as one HTML page that opens offline. Some ranks are read again for it, by this process."""
        from tracekit.render.page.build import report_html

        return report_html(self)

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the report as its name says: .html, .json, .txt, .md, .xlsx, or a folder of tables, .csv or .parquet.

        Warns if a format has no room for something. Raises UsageError for another name, or where a package is missing.
        Raises OutputError when `path` exists and `force` is False, or it cannot be written.
        """
        from tracekit.render.files.formats import OutputRequest, write_report

        for remark in write_report(self, Path(path), OutputRequest(force=force)):
            warnings.warn(remark, stacklevel=2)

    def _repr_html_(self) -> str:
        from tracekit.render.notebook.screen import report_html

        return report_html(self)


class Comparison(comparing.Comparison):
    """A comparison of runs, as `compare` returns it."""

    def summary(self) -> str:
        """Return the verdict, what the change consists of and where to look, as one screen of text."""
        from tracekit.render.comparison.outputs import comparison_text

        return comparison_text(self, width=100, color=False)

    def to_json(self) -> str:
        """Return the comparison as JSON, as `tracekit compare --json` prints it."""
        from tracekit.render.comparison.document import comparison_json

        return comparison_json(self)

    def to_html(self) -> str:
        """Return the comparison as one HTML page that opens offline."""
        from tracekit.render.comparison.document import comparison_html

        return comparison_html(self)

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the comparison as its name says: .html, .json, .md or .txt.

        Raises UsageError for another name. Raises OutputError when `path` exists and `force` is False, or it cannot be
        written.
        """
        from tracekit.render.comparison.outputs import write_comparison

        write_comparison(self, Path(path), force=force)

    def _repr_html_(self) -> str:
        from tracekit.render.comparison.outputs import comparison_screen

        return comparison_screen(self)


_SHOWN: dict[type, type] = {runs.Run: Run, reporting.Report: Report, comparing.Comparison: Comparison}


def _with_methods(plain: Any) -> Any:
    """Return a plain result, or a tuple of them, as the class here that has methods; whatever else it is, as it is."""
    if type(plain) is tuple:
        return tuple(_with_methods(each) for each in plain)
    if type(plain) not in _SHOWN:
        return plain
    shown: Any = object.__new__(_SHOWN[type(plain)])
    vars(shown).update({name: _with_methods(value) for name, value in vars(plain).items()})
    return shown


def _shown(function: Callable[P, Any], kind: type[T]) -> Callable[P, T]:
    """Return the function with a result of the class `kind` here."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        result: T = _with_methods(function(*args, **kwargs))
        return result

    return call


load = _shown(loading.load, Run)
analyze = _shown(reporting.analyze, Report)
compare = _shown(comparing.compare, Comparison)
