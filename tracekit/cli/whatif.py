"""`tracekit whatif`: what fixing a slow rank, stage or link would save."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.options import STEPS, Command, output_options, text_format
from tracekit.cli.inputs.run_choice import RunChoice, refuse_suffixes, run_options, write_result

if TYPE_CHECKING:
    from tracekit.loading.options import StepSelection


@click.command(cls=Command)
@run_options()
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps.")
@output_options("(.json or .txt)")
def whatif(
    choice: RunChoice,
    steps: StepSelection | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Estimate what each fix would save a step, by replaying it.

    RUN is a run folder or trace files.
    """
    from tracekit.explain.whatif.graph.run_graph import build_run_graph
    from tracekit.explain.whatif.whatif import what_if
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.model.texts import unicode_text
    from tracekit.render.console import write
    from tracekit.render.json_result import json_document
    from tracekit.render.sections.json import whatif_dict
    from tracekit.render.sections.text import whatif_table

    refuse_suffixes([] if output is None else [output], [".json"] if as_json else [".json", ".txt"])
    run = choice.load(SummaryOptions(steps=steps or StepSelection()))
    result = what_if(build_run_graph(run))
    is_json = as_json or (output is not None and output.suffix == ".json")
    path = " ".join(choice.shown_paths)
    if is_json:
        content = {"path": unicode_text(path), "notes": list(result.notes), "whatif": whatif_dict(result)}
        text = json_document(content)
    else:
        text = write([f"{path}: {result.steps} steps", "", *whatif_table(result)], **text_format(output))
    write_result(output, text, is_json=is_json, force=force)
