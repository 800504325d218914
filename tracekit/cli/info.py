"""`tracekit info`: what a run holds, without an analysis."""

from __future__ import annotations

import click

from tracekit.cli.inputs.options import terminal_format
from tracekit.cli.inputs.run_choice import RunChoice, run_options


@click.command()
@run_options
def info(choice: RunChoice) -> None:
    """Show what a run holds: ranks, steps, device, clocks, notes."""
    from tracekit.render.run_info import RunInfo

    found = choice.load()
    click.echo(RunInfo(**terminal_format()).render(found), nl=False)
