"""`tracekit optables`: what a table of operations of another tracer shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.options import STEPS, output_options, text_format
from tracekit.cli.inputs.run_choice import refuse_suffixes, write_result

if TYPE_CHECKING:
    from tracekit.loading.options import StepSelection


@click.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="OPS")
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps.")
@click.option("--full", is_flag=True, help="Every table, below the screen.")
@click.option(
    "--time-unit",
    type=click.Choice(("ns", "us", "ms", "s")),
    help="Of times whose column names none (start_ms does); seconds by default.",
)
@output_options("(.json or .txt)")
def optables(
    path: Path,
    steps: StepSelection | None,
    full: bool,
    time_unit: str | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Analyse a pipeline that another tracer recorded.

    OPS is a table with one operation a row (.csv or .parquet). docs/operation-tables.md lists the columns. Told are
    bubbles, the critical path, slow ranks, stalls, and what each fix and removing one outlier would save.
    """
    from tracekit.model.texts import unicode_text
    from tracekit.optables.diagnosis import diagnose_file
    from tracekit.optables.screen import table_answer, table_details, table_dict
    from tracekit.render.console import write
    from tracekit.render.json_result import json_document

    refuse_suffixes([] if output is None else [output], [".json"] if as_json else [".json", ".txt"])
    chosen = None if steps is None else steps.__contains__
    diagnosis = diagnose_file(path, chosen, time_unit)
    is_json = as_json or (output is not None and output.suffix == ".json")
    if is_json:
        head = {"path": unicode_text(str(path)), "notes": list(diagnosis.notes)}
        text = json_document(head | table_dict(diagnosis))
    else:
        style = text_format(output)
        blocks = table_answer(diagnosis, style["width"])
        text = write([*blocks, *(table_details(diagnosis, style["width"]) if full else [])], **style)
    write_result(output, text, is_json=is_json, force=force)
