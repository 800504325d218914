"""Which file a report becomes: one entry a format, chosen by the suffix of the name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.report.report import Report

if TYPE_CHECKING:
    from tracekit.render.page.lanes import LaneReader
    from tracekit.render.terminal import Extent


@dataclass(frozen=True, kw_only=True)
class OutputRequest:
    """What is asked for besides the report.

    Attributes:
        force: overwrite what is there.
        extent: how much a text has.
        style: width and color of a text, as `terminal_text` takes them.
        actions: every pipeline action, for programs.
        read_lanes: how the HTML report reads some ranks again; by default in this process.
    """

    force: bool = False
    extent: Extent = "full"
    style: Mapping[str, Any] = field(default_factory=dict)
    actions: bool = False
    read_lanes: LaneReader | None = None


Writer = Callable[[Report, Path, OutputRequest], tuple[str, ...]]
"""Writes a report to a path, and returns what was left out, a sentence each."""


def json_text(report: Report, request: OutputRequest) -> str:
    """Return the JSON result."""
    from tracekit.render.json_result import result_json

    return result_json(report, actions=request.actions)


def plain_text(report: Report, request: OutputRequest) -> str:
    """Return the report as text."""
    from tracekit.render.terminal import terminal_text

    return terminal_text(report, extent=request.extent, **request.style)


def _markdown_text(report: Report, request: OutputRequest) -> str:
    from tracekit.render.files.markdown import report_markdown

    return report_markdown(report)


def _file_of(render: Callable[[Report, OutputRequest], str]) -> Writer:
    def write(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
        from tracekit.render.output import new_file

        text = render(report, request)
        with new_file(path, force=request.force) as stream:
            stream.write(text.encode())
        return ()

    return write


def _page(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
    from tracekit.render.page.build import write_page
    from tracekit.render.page.lanes import read_again

    write_page(path, report, request.read_lanes or read_again, force=request.force)
    return ()


def _written_by(module: str, function: str) -> Writer:
    """Return a writer of tables, whose module is imported when it writes."""

    def write(report: Report, path: Path, request: OutputRequest) -> tuple[str, ...]:
        write_tables = getattr(import_module(f"tracekit.render.files.{module}"), function)
        return write_tables(report, path, force=request.force) or ()

    return write


FORMATS: Mapping[str, Writer] = {
    ".html": _page,
    ".json": _file_of(json_text),
    ".txt": _file_of(plain_text),
    ".md": _file_of(_markdown_text),
    ".csv": _written_by("tables", "write_csv_folder"),
    ".parquet": _written_by("tables", "write_parquet_folder"),
    ".xlsx": _written_by("workbook", "write_workbook"),
}
"""What writes a report, by the suffix of the file or folder. A new format is added here."""

FOLDERS = (".csv", ".parquet")
"""The suffixes of folders, which have a file a table."""


def format_of(path: Path) -> str:
    """Return the suffix of the format that the name of a file or folder asks for. Raises UsageError if it is none."""
    if path.suffix in FORMATS:
        return path.suffix
    *others, last = FORMATS
    raise UsageError(
        f"-o {path}: the name does not end in {', '.join(others)} or {last}",
        hint="it says the format, of which .csv and .parquet are folders",
    )


def write_report(report: Report, path: Path, request: OutputRequest | None = None) -> tuple[str, ...]:
    """Write a report in the format that the name asks for. Return what was left out, a sentence each.

    Raises UsageError for another suffix and where a package is missing. Raises OutputError when `path` exists and is
    not to be overwritten, is a recording, or cannot be written.
    """
    return FORMATS[format_of(path)](report, path, request or OutputRequest())
