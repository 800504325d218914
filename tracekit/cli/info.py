"""`tracekit info`: what a run holds, without an analysis."""

from __future__ import annotations

import click

from tracekit.cli.inputs.echo import echo_drawn
from tracekit.cli.inputs.options import Command, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice, run_options


@click.command(cls=Command)
@run_options()
@click.option("--kernels", is_flag=True, help="List what ran on the devices, what it counts as and by which rule.")
def info(choice: RunChoice, kernels: bool) -> None:
    """Show what a run holds: ranks, steps, device, clocks, notes."""
    found = choice.load()
    if not kernels:
        from tracekit.render.run_info import run_text

        echo_drawn(run_text(found, **terminal_format()))
        return
    from tracekit.render.run_info import kernel_text
    from tracekit.report.kernel_list import list_kernels

    with choice.workers() as workers:
        uses = list_kernels(found, options=choice.with_rules(), **workers)
    echo_drawn(kernel_text(found, uses, **terminal_format()))
