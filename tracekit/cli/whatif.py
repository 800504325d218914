"""`tracekit whatif`: what fixing a slow rank, stage or link would save."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.inputs.echo import echo, echo_json, shown
from tracekit.cli.inputs.options import STEPS, result_options, terminal_format
from tracekit.cli.inputs.result_files import write_text
from tracekit.cli.inputs.run_choice import RunChoice, run_options

if TYPE_CHECKING:
    from tracekit.analysis.per_rank.options import StepSelection

_SIZE = click.IntRange(min=1)


@click.command()
@run_options
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps.")
@click.option("--full", is_flag=True, help="Of a table of operations: every table, below the screen.")
@click.option(
    "--time-unit",
    type=click.Choice(("ns", "us", "ms", "s")),
    help="Of times whose column names none (start_ms does); seconds by default.",
)
@click.option("--pipeline-ranks", type=_SIZE, metavar="N", help="Of a log of timers that does not say it.")
@click.option("--microbatches", type=_SIZE, metavar="N", help="Of a log of timers that does not say it.")
@result_options
def whatif(
    choice: RunChoice,
    steps: StepSelection | None,
    full: bool,
    time_unit: str | None,
    pipeline_ranks: int | None,
    microbatches: int | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Estimate what each fix would save a step, by replaying it.

    RUN is a run folder, trace files, or one table of operations of any tracer: .csv or .parquet, a log with Megatron's
    timers, or traces of MegaScan. docs/operation-tables.md lists the columns. Of a table all is told: bubbles, the
    critical path, slow ranks, stalls, and what removing one outlier saves.
    """
    import tracekit
    from tracekit.cli.inputs.operation_table import diagnose_path, is_operation_table
    from tracekit.errors import UsageError
    from tracekit.model.safe_text import unicode_text
    from tracekit.render.console import write
    from tracekit.render.json_result import SCHEMA_VERSION, JsonResult
    from tracekit.render.terminal import TerminalReport

    formats = (JsonResult.suffix,) if as_json else (JsonResult.suffix, TerminalReport.suffix)
    if output is not None and output.suffix not in formats:
        raise UsageError(f"-o {output}: the name does not end in {' or '.join(formats)}", hint="it says the format")
    is_json = as_json or (output is not None and output.suffix == JsonResult.suffix)
    style: dict[str, Any] = terminal_format() if output is None else {"width": 80, "color": False}
    if any(is_operation_table(path) for path in choice.paths):
        if len(choice.paths) > 1 or (choice.run, choice.attempt, choice.ranks) != (None, None, None):
            raise UsageError("a table of operations is analysed alone and whole", hint="give one table, or a run")
        from tracekit.analysis.operation_tables.formats.megatron_timers import PipelineSizes
        from tracekit.render.sections.operation_table import operation_table_dict, table_answer, table_details

        sizes = PipelineSizes(pipeline_ranks=pipeline_ranks, microbatches=microbatches)
        diagnosis = diagnose_path(Path(choice.paths[0]), steps, time_unit, sizes)
        diagnosis = replace(diagnosis, path=choice.shown_paths[0], notes=tuple(shown(note) for note in diagnosis.notes))
        notes, found = list(diagnosis.notes), operation_table_dict(diagnosis) if is_json else {}
        parts = [] if is_json else table_answer(diagnosis, style["width"])
        parts += table_details(diagnosis, style["width"]) if full and not is_json else []
    else:
        from tracekit.analysis.per_rank.options import StepSelection, SummaryOptions
        from tracekit.analysis.whatif.graph.run_graph import build_run_graph
        from tracekit.analysis.whatif.whatif import what_if
        from tracekit.render.sections.whatif import whatif_dict, whatif_table

        run = choice.load(SummaryOptions(steps=steps or StepSelection()))
        result = what_if(build_run_graph(run))
        notes, found = list(result.notes), {"whatif": whatif_dict(result)}
        parts = [" ".join(choice.shown_paths) + f": {result.steps} steps", "", *whatif_table(result)]
    if is_json:
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "tracekit_version": tracekit.__version__,
            "path": unicode_text(" ".join(choice.shown_paths)),
            "notes": notes,
            **found,
        }
        text = json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"
    else:
        text = write(parts, **style)
    if output is None:
        echo_json(text) if is_json else echo(text, nl=False)
        return
    write_text(output, text, force=force)
