"""`tracekit merge`: all ranks in one Perfetto trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.options import fan_out, progress_on_stderr, run_options

if TYPE_CHECKING:
    from tracekit.read.cache import CacheChoice

_SUFFIXES = (".pftrace", ".perfetto-trace")
_PHASES = {
    "s": "flow starts",
    "t": "flow steps",
    "f": "flow ends",
    "C": "counter values",
    "i": "instants",
    "I": "instants",
    "M": "names of processes and threads",
}


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
    scheduler: str | None,
    cache: CacheChoice,
    output: Path,
    force: bool,
) -> None:
    """Write one Perfetto trace of all ranks, on one clock."""
    from tracekit.analysis.load import load
    from tracekit.errors import UsageError
    from tracekit.render.console import file_size
    from tracekit.render.perfetto.merge import merge as merge_run
    from tracekit.render.safe_text import safe_text

    if not output.name.removesuffix(".gz").endswith(_SUFFIXES):
        hint = "the trace is in Perfetto's own format: name it run.pftrace or run.pftrace.gz"
        raise UsageError(f"-o {output}: not a name for a Perfetto trace", hint=hint)
    with fan_out(jobs, scheduler) as workers:
        found = load(paths, run=run, attempt=attempt, ranks=ranks, cache=cache, **workers)
    with progress_on_stderr("writing ranks") as progress:
        merged = merge_run(found, output, force=force, jobs=jobs, progress=progress)
    for note in found.notes:
        if note.is_defect:
            click.echo(safe_text(note.text), err=True)
    click.echo(f"{output}: {merged.ranks} ranks, {merged.slices:,} slices, {file_size(merged.size_bytes)}")
    if merged.left_out:
        counts = ", ".join(f"{count:,} {_PHASES.get(phase, phase)}" for phase, count in merged.left_out.items())
        click.echo(f"not slices, and left out: {counts}")
    click.echo("Next: open it at https://ui.perfetto.dev (it stays in your browser)")
