"""`tracekit explain`: what findings mean, how they were decided on a run, and who came close."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.echo import echo_drawn
from tracekit.cli.inputs.options import STEPS, Command, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice, run_options

if TYPE_CHECKING:
    from tracekit.loading.options import StepSelection
    from tracekit.report.report import Report


@click.command(cls=Command)
@run_options("[ID] [RUN...]", required=False)
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps.")
def explain(choice: RunChoice, steps: StepSelection | None) -> None:
    """Say what the finding ID means and what it takes; with RUN, how it was decided there, and who came close.

    Without ID it explains all findings of RUN, and how much of the step none of them explains. Without either it lists
    all ids.
    """
    from tracekit.findings.catalogue import catalogue
    from tracekit.render.explanation import catalogue_text, entry_text, run_text

    entries, paths = catalogue(), choice.paths
    entry = entries.get(paths[0]) if paths else None
    if entry is not None:
        choice = replace(choice, paths=paths[1:])
    elif paths and not Path(paths[0]).exists() and "/" not in paths[0]:
        _refuse(paths[0], list(entries))
    if entry is not None:
        report = _report(choice, steps) if choice.paths else None
        text = entry_text(entry, report, **terminal_format())
    elif paths:
        text = run_text(_report(choice, steps), **terminal_format())
    else:
        text = catalogue_text(list(entries.values()), **terminal_format())
    echo_drawn(text)


def _refuse(name: str, ids: list[str]) -> None:
    import difflib  # only a wrong name needs it

    from tracekit.errors import UsageError

    similar = difflib.get_close_matches(name, ids, n=1)
    hint = f"did you mean {similar[0]}?" if similar else "tracekit explain lists all ids"
    raise UsageError(f"{name} is neither a finding nor a file", hint=hint)


def _report(choice: RunChoice, steps: StepSelection | None) -> Report:
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.report.report import analyze

    return analyze(choice.load(SummaryOptions(steps=steps or StepSelection())))
