"""The files that commands write results to, and the reports of the runs that they compare.

A result may go to files of several formats at once; the suffix of each says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.cli.inputs.echo import echo_written
from tracekit.cli.inputs.run_choice import RunChoice

if TYPE_CHECKING:
    from tracekit.analysis.per_rank.options import StepSelection
    from tracekit.analysis.report import Report
    from tracekit.analysis.section import KnownWork

__all__ = ["read_reports", "refuse_suffixes", "write_results", "write_text"]


def refuse_suffixes(files: Sequence[Path], suffixes: Sequence[str]) -> None:
    """Raise UsageError for a file whose name ends in none of the suffixes."""
    from tracekit.errors import UsageError

    for file in files:
        if file.suffix not in suffixes:
            raise UsageError(f"-o {file}: the name does not end in {', '.join(suffixes)}", hint="it says the format")


def write_results(files: Sequence[Path], render: Callable[[str], str], *, force: bool) -> None:
    """Write what `render` returns for the suffix of each file. Raises OutputError."""
    for file in files:
        write_text(file, render(file.suffix), force=force)


def write_text(file: Path, text: str, *, force: bool) -> None:
    """Write a file, and say so on stderr. Raises OutputError."""
    from tracekit.render.output import new_file

    with new_file(file, force=force) as stream:
        stream.write(text.encode())
    echo_written(file)


def read_reports(
    choices: Sequence[RunChoice],
    steps: StepSelection | None,
    sections: Iterable[str],
    work: KnownWork | None = None,
) -> list[Report]:
    """Return the report of each run, with some sections. Raises what loading a run raises.

    Everything is read of a run, so that `tracekit analyze` finds its summaries in the cache, and the other way round.
    """
    from tracekit.analysis.per_rank.options import StepSelection, SummaryOptions
    from tracekit.analysis.report import analyze

    options = SummaryOptions(steps=steps or StepSelection())
    first, *others = choices
    if first.anonymize:
        pseudonyms = first.pseudonyms_with(*others)
        choices = [replace(choice, anonymize=pseudonyms) for choice in choices]
    return [analyze(choice.load(options), only=sections, work=work) for choice in choices]
