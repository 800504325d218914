"""`tracekit merge`: all ranks in one Perfetto trace."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.cli.options import progress_on_stderr, run_options


@click.command()
@run_options
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("run.pftrace"), show_default=True,
              metavar="FILE", help="The trace to write; .gz packs it.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def merge(
    paths: tuple[str, ...],
    run: str | None,
    attempt: int | None,
    ranks: frozenset[int] | None,
    jobs: int | None,
    output: Path,
    force: bool,
) -> None:
    """Write one Perfetto trace of all ranks, on one clock."""
    from tracekit.analysis.load import load
    from tracekit.render.perfetto.merge import merge as merge_run
    from tracekit.render.terminal import file_size

    with progress_on_stderr("reading ranks") as progress:
        found = load(paths, run=run, attempt=attempt, ranks=ranks, jobs=jobs, progress=progress)
    with progress_on_stderr("writing ranks") as progress:
        merged = merge_run(found, output, force=force, jobs=jobs, progress=progress)
    for note in found.notes:
        if note.severity != "info":
            click.echo(note.text, err=True)
    click.echo(f"{output}: {merged.ranks} ranks, {merged.slices:,} slices, {file_size(merged.size_bytes)}")
    click.echo("Next: open it at https://ui.perfetto.dev (it stays in your browser)")
