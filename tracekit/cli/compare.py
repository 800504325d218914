"""`tracekit compare`: whether a run's steps take longer than those of a baseline, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.echo import echo_drawn, echo_json
from tracekit.cli.inputs.options import SHARE, STEPS, Command, output_options, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice, run_options
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.loading.options import StepSelection


@click.command(cls=Command)
@run_options("BASELINE... CANDIDATE", several=True)
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps, of all runs.")
@click.option("--margin", type=SHARE, metavar="3%", help="A change by less does not matter (default: 3%).")
@click.option(
    "--run-noise",
    type=SHARE,
    metavar="2%",
    help="By which share runs differ though nothing is changed, until three baselines show it (default: 2%).",
)
@output_options("(.html, .json, .md or .txt)", several=True)
def compare(
    choice: RunChoice,
    steps: StepSelection | None,
    margin: float | None,
    run_noise: float | None,
    as_json: bool,
    outputs: tuple[Path, ...],
    force: bool,
) -> None:
    """Say whether CANDIDATE is slower or faster than BASELINE, by how much, and what the change consists of.

    Each is a run folder (its newest run is taken) or a run in it, such as runs/20260101T120000Z-1a2b3c4d. With three
    baseline runs or more the noise between runs is measured, else it is assumed.

    \b
        tracekit compare runs/main runs/branch
        tracekit compare runs/main-1 runs/main-2 runs/main-3 runs/branch
    """
    from tracekit.cli.inputs.run_choice import read_reports, refuse_suffixes, write_results
    from tracekit.comparison.comparison import SECTIONS_READ
    from tracekit.comparison.comparison import compare as compare_reports
    from tracekit.comparison.step_verdict import DEFAULT_MARGIN, DEFAULT_RUN_NOISE
    from tracekit.render.comparison.outputs import SUFFIXES, comparison_text, render_comparison

    if len(choice.paths) < 2:
        raise UsageError("one run alone cannot be compared", hint="give a baseline and a candidate")
    refuse_suffixes(outputs, SUFFIXES)
    reports = read_reports([choice.of_path(path) for path in choice.paths], steps, SECTIONS_READ)
    comparison = compare_reports(
        reports[:-1],
        reports[-1],
        margin=DEFAULT_MARGIN if margin is None else margin,
        run_noise=DEFAULT_RUN_NOISE if run_noise is None else run_noise,
    )
    if as_json:
        echo_json(render_comparison(comparison, ".json"))
    elif not outputs:
        echo_drawn(comparison_text(comparison, **terminal_format()))
    write_results(outputs, lambda suffix: render_comparison(comparison, suffix), force=force)
