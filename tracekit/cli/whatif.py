"""`tracekit whatif`: what mending a slow rank, stage or link would save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.options import STEPS, fan_out, result_options, run_options, terminal_format

if TYPE_CHECKING:
    from tracekit.analysis.summarize import StepSelection
    from tracekit.analysis.workload import Job
    from tracekit.read.cache import CacheChoice

_TABLES = (".parquet", ".csv")


@click.command()
@run_options
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps.")
@result_options
def whatif(
    paths: tuple[str, ...],
    run: str | None,
    attempt: int | None,
    ranks: frozenset[int] | None,
    jobs: int | None,
    scheduler: str | None,
    cache: CacheChoice,
    steps: StepSelection | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Say what each fix would save a step, by replaying it.

    RUN is a run folder, trace files, or one table of operations (.parquet, .csv) from any tracer.
    """
    import tracekit
    from tracekit.analysis.load import load
    from tracekit.analysis.run_workload import job_of_run
    from tracekit.analysis.summarize import StepSelection, SummaryOptions
    from tracekit.analysis.whatif import what_if
    from tracekit.errors import UsageError
    from tracekit.render.console import write
    from tracekit.render.json_result import SCHEMA_VERSION, JsonResult
    from tracekit.render.output import new_file
    from tracekit.render.terminal import TerminalReport
    from tracekit.render.whatif_table import whatif_dict, whatif_table

    formats = (JsonResult.suffix,) if as_json else (JsonResult.suffix, TerminalReport.suffix)
    if output is not None and output.suffix not in formats:
        raise UsageError(f"-o {output}: the name does not end in {' or '.join(formats)}", hint="it says the format")
    tables = [path for path in paths if path.lower().endswith(_TABLES)]
    if tables:
        if len(paths) > 1 or run is not None or attempt is not None or ranks is not None:
            raise UsageError("a table of operations is analysed alone and whole", hint="give one table, or a run")
        job = _job_of_table(Path(tables[0]), steps)
    else:
        with fan_out(jobs, scheduler) as workers:
            options = SummaryOptions(steps=steps or StepSelection())
            found = load(paths, run=run, attempt=attempt, ranks=ranks, options=options, cache=cache, **workers)
        job = job_of_run(found)
    result = what_if(job)
    if as_json or (output is not None and output.suffix == JsonResult.suffix):
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "tracekit_version": tracekit.__version__,
            "path": " ".join(paths),
            "notes": list(result.notes),
            "whatif": whatif_dict(result),
        }
        text = json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"
    else:
        parts = [" ".join(paths) + f": {result.steps} steps", "", *whatif_table(result)]
        text = write(parts, **(terminal_format() if output is None else {"width": 80, "color": False}))
    if output is None:
        click.echo(text, nl=False)
        return
    with new_file(output, force=force) as stream:
        stream.write(text.encode())
    click.echo(f"wrote {output}", err=True)


def _job_of_table(path: Path, steps: StepSelection | None) -> Job:
    from tracekit.analysis.op_table import job_of_operations, read_operations
    from tracekit.errors import InputError
    from tracekit.model.ranks import format_ranges

    table = read_operations(path)
    recorded = sorted(set(table["step"].tolist()))
    selected = [step for step in recorded if steps is None or step in steps]
    if not selected:
        there = format_ranges(recorded)
        raise InputError(f"{path}: none of the selected steps is there", hint=f"recorded steps: {there}")
    return job_of_operations(table[table["step"].isin(selected)].reset_index(drop=True), str(path))
