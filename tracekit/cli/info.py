"""`tracekit info`: what a run holds, before any analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracekit.cli.options import fan_out, run_options, terminal_format

if TYPE_CHECKING:
    from tracekit.read.cache import CacheChoice


@click.command()
@run_options
def info(
    paths: tuple[str, ...],
    run: str | None,
    attempt: int | None,
    ranks: frozenset[int] | None,
    jobs: int | None,
    scheduler: str | None,
    cache: CacheChoice,
) -> None:
    """Show what a run holds: ranks, steps, device, clocks, notes."""
    from tracekit.analysis.load import load
    from tracekit.render.run_info import RunInfo

    with fan_out(jobs, scheduler) as workers:
        found = load(paths, run=run, attempt=attempt, ranks=ranks, cache=cache, **workers)
    click.echo(RunInfo(**terminal_format()).render(found), nl=False)
