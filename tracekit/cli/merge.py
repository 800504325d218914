"""`tracekit merge`: all ranks in one Perfetto trace."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.cli.options import progress_on_stderr
from tracekit.cli.run_choice import RunChoice, run_options

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
def merge(choice: RunChoice, output: Path, force: bool) -> None:
    """Write one Perfetto trace of all ranks, on one clock."""
    from tracekit.errors import UsageError
    from tracekit.render.console import file_size
    from tracekit.render.merged.merge import merge as merge_run
    from tracekit.render.safe_text import safe_text

    if not output.name.removesuffix(".gz").endswith(_SUFFIXES):
        hint = "the trace is in Perfetto's own format: name it run.pftrace or run.pftrace.gz"
        raise UsageError(f"-o {output}: not a name for a Perfetto trace", hint=hint)
    found = choice.load()
    with progress_on_stderr("writing ranks") as progress:
        merged = merge_run(found, output, force=force, jobs=choice.jobs, progress=progress)
    for note in found.notes:
        if note.is_defect:
            click.echo(safe_text(note.text), err=True)
    click.echo(f"{output}: {merged.ranks} ranks, {merged.slices:,} slices, {file_size(merged.size_bytes)}")
    if merged.left_out:
        counts = ", ".join(f"{count:,} {_PHASES.get(phase, phase)}" for phase, count in merged.left_out.items())
        click.echo(f"not slices, and left out: {counts}")
    click.echo("Next: open it at https://ui.perfetto.dev (it stays in your browser)")
