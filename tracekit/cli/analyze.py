"""`tracekit analyze`: the verdict on a run, its tables, and the next command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.echo import echo, echo_drawn, echo_json, echo_written
from tracekit.cli.inputs.options import SECTIONS, STEPS, Command, output_options, text_format
from tracekit.cli.inputs.run_choice import RunChoice, run_options, work_options

if TYPE_CHECKING:
    from tracekit.explain.section import KnownWork
    from tracekit.loading.options import StepSelection
    from tracekit.render.files.formats import OutputRequest
    from tracekit.report.report import Report


@click.command(cls=Command)
@run_options()
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps; 'recording': everything, as one span.")
@click.option("--full", is_flag=True, help="All findings, tables and notes, not the answer alone.")
@click.option(
    "--section",
    "sections",
    type=SECTIONS,
    multiple=True,
    metavar="NAME",
    help="The tables of this section only, such as breakdown; may be given again, or as a list with commas.",
)
@work_options()
@click.option("--brief", is_flag=True, help="Print the findings and what to type next as JSON of 3 kB, for agents.")
@click.option("--actions", is_flag=True, help="Add every pipeline action to the JSON.")
@output_options("(.html, .json, .txt, .md or .xlsx, or a folder of tables named .csv or .parquet)")
@click.option("--strict", is_flag=True, help="Exit with 3 when anything is missing or was repaired.")
def analyze(
    choice: RunChoice,
    steps: StepSelection | None,
    full: bool,
    sections: tuple[tuple[str, ...], ...],
    work: KnownWork,
    brief: bool,
    actions: bool,
    as_json: bool,
    output: Path | None,
    force: bool,
    strict: bool,
) -> None:
    """Say what slows a step, what causes it, what fixing it saves, and what to do.

    RUN is a run folder (its newest run is taken), trace files, or a glob in quotes. tracekit report
    writes the same as a page.
    """
    from tracekit.errors import InputError, UsageError
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.render.files.formats import OutputRequest, format_of, json_text, plain_text
    from tracekit.render.json_result import brief_json
    from tracekit.report.report import analyze as analyze_run
    from tracekit.report.report import wanted_sections

    suffix = (".json" if as_json else ".txt") if output is None else format_of(output)
    if as_json and suffix != ".json":
        raise UsageError(f"-o {output}: the name does not end in .json", hint="it says the format")
    if actions and suffix != ".json":
        raise UsageError("--actions: only JSON has every action", hint="add --json")
    if brief and (full or sections or actions or as_json or output is not None):
        raise UsageError("--brief prints its own JSON", hint="leave out the other options of the output")
    only = tuple(name for names in sections for name in names) or None
    wanted = wanted_sections(only)
    if output is not None:
        from tracekit.render.output import refuse_existing

        refuse_existing(output, force=force)
    options = SummaryOptions(steps=steps or StepSelection(), sections=wanted)
    found = choice.load(options)
    report = analyze_run(found, only=only, work=work)
    request = OutputRequest(
        force=force,
        extent="full" if full else "sections" if only is not None else "answer" if output is None else "full",
        actions=actions,
        style=text_format(output),
        read_lanes=choice.lane_reader(options),
    )
    if output is None:
        if brief:
            echo_json(brief_json(report))
        elif as_json:
            echo_json(json_text(report, request))
        else:
            echo_drawn(plain_text(report, request))
    else:
        _write(report, output, request)
    defects = [note for note in report.run.notes if note.is_defect]
    if strict and defects:
        others = f"; and {len(defects) - 1} more" * (len(defects) > 1)
        raise InputError(f"--strict: {defects[0].text}{others}", hint="record again, or leave out --strict")


def _write(report: Report, output: Path, request: OutputRequest) -> None:
    from tracekit.render.files.formats import FOLDERS, write_report

    for remark in write_report(report, output, request):
        echo(remark, err=True)
    tables = f"/: {len(report.filled_tables) + 1} files" if output.suffix in FOLDERS else ""
    echo_written(output, tables)
