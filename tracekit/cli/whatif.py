"""`tracekit whatif`: what fixing a slow rank, stage or link would save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.inputs.options import STEPS, result_options, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice, run_options

if TYPE_CHECKING:
    from tracekit.analysis.per_rank.options import StepSelection
    from tracekit.analysis.replay.operation_graph import OperationGraph

_TABLES = (".parquet", ".csv")


@click.command()
@run_options
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps.")
@result_options
def whatif(
    choice: RunChoice,
    steps: StepSelection | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Estimate what each fix would save a step, by replaying it.

    RUN is a run folder, trace files, or one table of operations (.parquet, .csv) from any tracer.
    """
    import tracekit
    from tracekit.analysis.per_rank.options import StepSelection, SummaryOptions
    from tracekit.analysis.whatif.graph.run_graph import build_run_graph
    from tracekit.analysis.whatif.whatif import what_if
    from tracekit.errors import UsageError
    from tracekit.render.console import write
    from tracekit.render.json_result import SCHEMA_VERSION, JsonResult
    from tracekit.render.output import new_file
    from tracekit.render.sections.whatif import whatif_dict, whatif_table
    from tracekit.render.terminal import TerminalReport

    formats = (JsonResult.suffix,) if as_json else (JsonResult.suffix, TerminalReport.suffix)
    if output is not None and output.suffix not in formats:
        raise UsageError(f"-o {output}: the name does not end in {' or '.join(formats)}", hint="it says the format")
    tables = [path for path in choice.paths if path.lower().endswith(_TABLES)]
    if tables:
        if len(choice.paths) > 1 or (choice.run, choice.attempt, choice.ranks) != (None, None, None):
            raise UsageError("a table of operations is analysed alone and whole", hint="give one table, or a run")
        graph = _graph_of_table(Path(tables[0]), steps)
    else:
        graph = build_run_graph(choice.load(SummaryOptions(steps=steps or StepSelection())))
    result = what_if(graph)
    if as_json or (output is not None and output.suffix == JsonResult.suffix):
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "tracekit_version": tracekit.__version__,
            "path": " ".join(choice.paths),
            "notes": list(result.notes),
            "whatif": whatif_dict(result),
        }
        text = json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"
    else:
        parts = [" ".join(choice.paths) + f": {result.steps} steps", "", *whatif_table(result)]
        text = write(parts, **(terminal_format() if output is None else {"width": 80, "color": False}))
    if output is None:
        click.echo(text, nl=False)
        return
    with new_file(output, force=force) as stream:
        stream.write(text.encode())
    click.echo(f"wrote {output}", err=True)


def _graph_of_table(path: Path, steps: StepSelection | None) -> OperationGraph:
    from tracekit.analysis.whatif.graph.op_table import build_table_graph, read_operations
    from tracekit.errors import InputError
    from tracekit.model.ranks import format_ranges

    table = read_operations(path)
    recorded = sorted(set(table["step"].tolist()))
    selected = [step for step in recorded if steps is None or step in steps]
    if not selected:
        there = format_ranges(recorded)
        raise InputError(f"{path}: none of the selected steps is there", hint=f"recorded steps: {there}")
    return build_table_graph(table[table["step"].isin(selected)].reset_index(drop=True), str(path))
