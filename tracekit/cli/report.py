"""`tracekit report`: the page of a run, and its verdict."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.echo import echo, echo_drawn
from tracekit.cli.inputs.options import STEPS, Command, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice, refuse_suffixes, run_options, work_options

if TYPE_CHECKING:
    from tracekit.explain.section import KnownWork
    from tracekit.loading.options import StepSelection
    from tracekit.model.run import Run


@click.command(cls=Command)
@run_options()
@click.option("--browse", is_flag=True, help="Open the page in the browser.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The page to write (.html).")
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps; 'recording': everything, as one span.")
@work_options()
def report(choice: RunChoice, browse: bool, output: Path | None, steps: StepSelection | None, work: KnownWork) -> None:
    """Write the page of a run: one file that opens in any browser, offline.

    RUN is what analyze takes. By default the page has the name of the run, in the current folder. A page that is there
    is written anew. Another file is never overwritten.
    """
    from tracekit import serve
    from tracekit.errors import OutputError
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.render.answer import open_options
    from tracekit.render.console import command_line
    from tracekit.render.page.build import is_page, write_page
    from tracekit.render.terminal import terminal_text
    from tracekit.report.report import analyze

    if output is not None:
        refuse_suffixes([output], [".html"])
    options = SummaryOptions(steps=steps or StepSelection())
    found = analyze(choice.load(options), work=work)
    page = output or Path(_page_name(found.run))
    if page.exists() and not is_page(page):
        raise OutputError(f"{page}: exists, and is no page of tracekit report", hint="choose another name with -o")
    write_page(page, found, choice.lane_reader(options), force=True)
    echo_drawn(terminal_text(found, extent="verdict", **terminal_format()))
    url = page.absolute().as_uri()
    echo()
    echo(f"Page: {page if choice.anonymize else url}")
    if browse and not serve.browse(url):
        echo("There is no browser with a window here: copy the page to where one is.", err=True)
    echo(f"Next: {command_line('open', found.run, *open_options(found))}")


def _page_name(run: Run) -> str:
    """Return the name of the page: that of the run, so that no run overwrites the page of another."""
    name = run.run_id or Path(run.paths[0]).absolute().name
    name = re.sub(r"[^\w.-]", "_", name) + f"-attempt{run.attempt}" * bool(run.attempt)
    return f"{name}.html"
