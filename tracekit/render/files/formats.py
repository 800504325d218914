"""Which file a report becomes: one entry a format, chosen by the suffix of the name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracekit.analysis.report import Report
from tracekit.errors import UsageError
from tracekit.render.output import new_file, refuse_input
from tracekit.render.terminal import Extent

__all__ = ["FORMATS", "OutputRequest", "ReportFormat", "format_of", "write_report"]


@dataclass(frozen=True, kw_only=True)
class OutputRequest:
    """What is asked for besides the report.

    Attributes:
        force: overwrite what is there.
        extent: how much a text file has.
        actions: every pipeline action, for programs.
        other_results: results of other tools, as further keys of the JSON.
        other_text: the same at the end of a text file.
    """

    force: bool = False
    extent: Extent = "full"
    actions: bool = False
    other_results: Mapping[str, Any] = field(default_factory=dict)
    other_text: str = ""


@dataclass(frozen=True, kw_only=True)
class ReportFormat:
    """A format.

    Attributes:
        suffix: of the name of the file or folder.
        content: what it holds, for documentation and --help.
        write: writes it, and returns what was left out, a sentence each.
        is_folder: whether it is a folder of files.
        takes: names of those fields of `OutputRequest` that change its content.
    """

    suffix: str
    content: str
    write: Callable[[Report, Path, OutputRequest], tuple[str, ...]]
    is_folder: bool = False
    takes: frozenset[str] = frozenset()


def _json(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
    from tracekit.render.json_result import JsonResult

    return _write_text(JsonResult(actions=request.actions).render(report, **request.other_results), path, request)


def _text(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
    from tracekit.render.terminal import TerminalReport

    return _write_text(TerminalReport(extent=request.extent).render(report) + request.other_text, path, request)


def _markdown(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
    from tracekit.render.files.markdown import report_markdown

    return _write_text(report_markdown(report), path, request)


def _csv(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
    from tracekit.render.files.tables import write_csv_folder

    write_csv_folder(report, path, force=request.force)
    return ()


def _parquet(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
    from tracekit.render.files.tables import write_parquet_folder

    write_parquet_folder(report, path, force=request.force)
    return ()


def _workbook(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
    from tracekit.render.files.workbook import write_workbook

    return write_workbook(report, path, force=request.force)


_LISTED = (
    ReportFormat(
        suffix=".json",
        content="the result for programs",
        write=_json,
        takes=frozenset({"actions", "other_results"}),
    ),
    ReportFormat(suffix=".txt", content="the report as text", write=_text, takes=frozenset({"extent", "other_text"})),
    ReportFormat(suffix=".md", content="a summary for pull requests", write=_markdown),
    ReportFormat(suffix=".csv", content="a folder of CSV files, one a table", write=_csv, is_folder=True),
    ReportFormat(suffix=".parquet", content="a folder of Parquet files, one a table", write=_parquet, is_folder=True),
    ReportFormat(suffix=".xlsx", content="an Excel workbook, a sheet a table", write=_workbook),
)

FORMATS: Mapping[str, ReportFormat] = {each.suffix: each for each in _LISTED}
"""The formats by suffix. A new one is added to this list."""


def format_of(path: Path) -> ReportFormat:
    """Return the format that the name of a file or folder asks for. Raises UsageError if it is none."""
    found = FORMATS.get(path.suffix)
    if found is None:
        suffixes = [*FORMATS]
        known = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise UsageError(f"-o {path}: the name does not end in {known}", hint="it says the format")
    return found


def write_report(report: Report, path: Path, request: OutputRequest | None = None) -> tuple[str, ...]:
    """Write a report in the format that the name asks for. Return what was left out, a sentence each.

    Raises UsageError for another suffix and where a package is missing. Raises OutputError when `path` exists and is
    not to be overwritten, is a file of the run, or cannot be written.
    """
    chosen = format_of(path)
    refuse_input(path, report.run)
    return chosen.write(report, path, request or OutputRequest())


def _write_text(text: str, path: Path, request: OutputRequest) -> tuple[str, ...]:
    with new_file(path, force=request.force) as stream:
        stream.write(text.encode())
    return ()
