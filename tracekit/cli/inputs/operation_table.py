"""A table of operations on the command line: which paths are one, and reading it in its form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.analysis.operation_tables.diagnosis import TableDiagnosis
    from tracekit.analysis.operation_tables.formats.megatron_timers import PipelineSizes
    from tracekit.analysis.per_rank.options import StepSelection

__all__ = ["diagnose_path", "is_operation_table"]


def is_operation_table(path: str) -> bool:
    """Return whether a path is a table of operations, by its name or its beginning."""
    from tracekit.analysis.operation_tables.formats.read_table import form_of

    return "://" not in path and form_of(Path(path)) is not None


def diagnose_path(path: Path, steps: StepSelection | None, unit: str | None, sizes: PipelineSizes) -> TableDiagnosis:
    """Return what a table of operations shows. Raises InputError when it cannot be read or replayed."""
    from tracekit.analysis.operation_tables.diagnosis import diagnose_megatron_table, diagnose_table
    from tracekit.analysis.operation_tables.formats.megascan import read_megascan
    from tracekit.analysis.operation_tables.formats.megatron_timers import read_timer_log
    from tracekit.analysis.operation_tables.formats.plain import read_plain_table
    from tracekit.analysis.operation_tables.formats.read_table import form_of, is_of_straggler_analysis, read_frame

    chosen = None if steps is None else steps.__contains__
    form = form_of(path)
    if form == "megascan":
        return diagnose_table(read_megascan(path), chosen)
    if form == "timers":
        return diagnose_table(read_timer_log(path, sizes), chosen)
    frame = read_frame(path)
    if is_of_straggler_analysis(frame):
        return diagnose_megatron_table(frame, str(path), chosen)
    return diagnose_table(read_plain_table(frame, str(path), unit=unit), chosen)
