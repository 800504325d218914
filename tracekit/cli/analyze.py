"""`tracekit analyze`: the verdict on a run, its tables, and the next command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.options import (
    AMOUNT,
    SECTIONS,
    STEPS,
    result_options,
    terminal_format,
)
from tracekit.cli.inputs.run_choice import RunChoice, run_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.per_rank.options import StepSelection, SummaryOptions
    from tracekit.analysis.report import Report
    from tracekit.hta.cross_check import CrossCheck
    from tracekit.model.run import Run
    from tracekit.render.json_result import JsonResult
    from tracekit.render.terminal import Extent, TerminalReport

_PAGE_SUFFIX = ".html"


@click.command()
@run_options
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
@click.option(
    "--links", type=click.Path(path_type=Path), metavar="FILE", help="Measured speeds of the links (links.json)."
)
@click.option("--flops-per-step", type=AMOUNT, metavar="F", help="The model's FLOPs a step and rank.")
@click.option("--peak-tflops", type=AMOUNT, metavar="P", help="Peak of a rank's device, in TFLOP/s.")
@click.option(
    "--cross-check", type=click.Choice(["hta"]), help="Name what differs from the figures of HTA, and why it does."
)
@click.option("--actions", is_flag=True, help="Add every pipeline action to the JSON.")
@result_options
@click.option("--strict", is_flag=True, help="Exit with 3 when anything is missing or was repaired.")
def analyze(
    choice: RunChoice,
    steps: StepSelection | None,
    full: bool,
    sections: tuple[tuple[str, ...], ...],
    links: Path | None,
    flops_per_step: float | None,
    peak_tflops: float | None,
    cross_check: str | None,
    actions: bool,
    as_json: bool,
    output: Path | None,
    force: bool,
    strict: bool,
) -> None:
    """Say what slows a step, what causes it, what fixing it saves, and what to do.

    RUN is a run folder (its newest run is taken), trace files, or a glob in quotes. With -o report.html the result is a
    page that opens offline.
    """
    from tracekit.analysis.per_rank.options import StepSelection, SummaryOptions
    from tracekit.analysis.report import analyze as analyze_run
    from tracekit.analysis.report import wanted_sections
    from tracekit.analysis.section import KnownWork
    from tracekit.errors import InputError, UsageError
    from tracekit.render.json_result import JsonResult
    from tracekit.render.terminal import TerminalReport

    formats = (JsonResult.suffix,) if as_json else (JsonResult.suffix, TerminalReport.suffix, _PAGE_SUFFIX)
    if output is not None and output.suffix not in formats:
        raise UsageError(f"-o {output}: the name does not end in {' or '.join(formats)}", hint="it says the format")
    in_json = as_json or (output is not None and output.suffix == JsonResult.suffix)
    if actions and not in_json:
        raise UsageError("--actions: the terminal shows the actions of one step only", hint="add --json")
    only = tuple(name for names in sections for name in names) or None
    extent: Extent = "full" if full else "sections" if only is not None else "full" if output is not None else "answer"
    wanted = wanted_sections(only)
    is_page = output is not None and output.suffix == _PAGE_SUFFIX
    if cross_check is not None:
        if is_page:
            raise UsageError("--cross-check: the HTML report has none", hint="write it as .txt or .json")
        if steps is not None:
            raise UsageError("--cross-check: HTA has no selection of steps", hint="leave out --steps")
        wanted = None if wanted is None else wanted | {"breakdown"}
    options = SummaryOptions(steps=steps or StepSelection(), sections=wanted)
    found = choice.load(options)
    peak = None if peak_tflops is None else peak_tflops * 1e12
    work = KnownWork(flops_per_step=flops_per_step, peak_flops_per_s=peak)
    report = analyze_run(found, only=only, links=links, work=work)
    check = None if cross_check is None else _cross_check(choice, found)
    if output is None:
        renderer = JsonResult(actions=actions) if in_json else TerminalReport(extent=extent, **terminal_format())
        click.echo(_render(renderer, report, check), nl=False)
    elif is_page:
        _write_page(output, choice, options, report, force=force)
    else:
        from tracekit.render.output import new_file

        renderer = JsonResult(actions=actions) if in_json else TerminalReport(extent=extent)
        with new_file(output, force=force) as stream:
            stream.write(_render(renderer, report, check).encode())
        click.echo(f"wrote {output}", err=True)
    defects = [note for note in found.notes if note.is_defect]
    if strict and defects:
        others = f"; and {len(defects) - 1} more" * (len(defects) > 1)
        raise InputError(f"--strict: {defects[0].text}{others}", hint="record again, or leave out --strict")


def _write_page(path: Path, choice: RunChoice, options: SummaryOptions, report: Report, *, force: bool) -> None:
    """Write the HTML report, for which some ranks are read again."""
    from tracekit.analysis.step_lanes import StepLanes, StepTime, read_step_lanes
    from tracekit.render.page.write import write_page

    def read_lanes(run: Run, times: Sequence[StepTime], most_operations: int) -> list[StepLanes]:
        with choice.workers() as workers:
            return read_step_lanes(
                run, times, most_operations=most_operations, options=choice.with_rules(options), **workers
            )

    write_page(path, report, read_lanes, force=force)
    click.echo(f"wrote {path}", err=True)


def _cross_check(choice: RunChoice, run: Run) -> CrossCheck:
    from tracekit.analysis.kernel_list import KernelUse, list_kernels
    from tracekit.analysis.per_rank.options import StepSelection, SummaryOptions
    from tracekit.hta.cross_check import cross_check

    def recording() -> Run:
        return choice.load(SummaryOptions(steps=StepSelection(whole=True), sections=frozenset({"breakdown"})))

    def kernels() -> list[KernelUse]:
        with choice.workers() as workers:
            return list_kernels(run, options=choice.with_rules(), **workers)

    return cross_check(run, recording=recording, kernels=kernels)


def _render(renderer: JsonResult | TerminalReport, report: Report, check: CrossCheck | None) -> str:
    """Return the report as text, with the cross-check behind it, or in its JSON as `cross_check`."""
    from tracekit.render.terminal import TerminalReport

    if check is None:
        return renderer.render(report)
    if isinstance(renderer, TerminalReport):
        from tracekit.hta.cross_check_text import cross_check_text

        return renderer.render(report) + cross_check_text(check, width=renderer.width, color=renderer.color)
    return renderer.render(report, cross_check=check.as_dict())
