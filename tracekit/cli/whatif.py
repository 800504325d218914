"""`tracekit whatif`: what fixing a slow rank, stage or link would save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.inputs.echo import echo_drawn, echo_json
from tracekit.cli.inputs.options import STEPS, result_options, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice, refuse_suffixes, run_options, write_text

if TYPE_CHECKING:
    from tracekit.loading.options import StepSelection


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

    RUN is a run folder or trace files.
    """
    from tracekit.explain.whatif.graph.run_graph import build_run_graph
    from tracekit.explain.whatif.whatif import what_if
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.model.quantities import unicode_text
    from tracekit.render.console import write
    from tracekit.render.json_result import JSON_HEAD
    from tracekit.render.sections.json import whatif_dict
    from tracekit.render.sections.text import whatif_table

    refuse_suffixes([] if output is None else [output], [".json"] if as_json else [".json", ".txt"])
    run = choice.load(SummaryOptions(steps=steps or StepSelection()))
    result = what_if(build_run_graph(run))
    if as_json or (output is not None and output.suffix == ".json"):
        document = {
            **JSON_HEAD,
            "path": unicode_text(" ".join(choice.shown_paths)),
            "notes": list(result.notes),
            "whatif": whatif_dict(result),
        }
        text = json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"
    else:
        style: dict[str, Any] = terminal_format() if output is None else {"width": 80, "color": False}
        text = write([" ".join(choice.shown_paths) + f": {result.steps} steps", "", *whatif_table(result)], **style)
    if output is None:
        echo_json(text) if as_json else echo_drawn(text)
        return
    write_text(output, text, force=force)
