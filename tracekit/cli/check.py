"""`tracekit check`: whether a run keeps to the limits of a project, for CI.

A project's gates are the table `gates` in its file of settings (`settings_file`), or in a file that is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from tracekit.cli.inputs.echo import echo_drawn, echo_json, echo_workflow_commands
from tracekit.cli.inputs.options import STEPS, Command, output_options, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice, run_options, work_options
from tracekit.cli.inputs.settings import LEFT_TO_CHECK, SettingsFile, find_settings_file
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.explain.section import KnownWork
    from tracekit.gates.evaluation import Check
    from tracekit.gates.gates import Gates
    from tracekit.loading.options import StepSelection


_DOUBTS = ("inconclusive", "incomparable", "unavailable", "incomplete")
_EXIT_FAILED = 1

GateTable = tuple[Mapping[str, object], str]
"""The table, and what to call it in messages: the file with the table's name."""


@click.command(cls=Command)
@run_options()
@click.option("--baseline", "baselines", multiple=True, metavar="RUN", help="Compare with RUN; may be given again.")
@click.option(
    "--gates",
    "gate_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Gates in TOML (default: those of the settings, see tracekit config).",
)
@click.option("--allow", type=click.Choice(_DOUBTS), multiple=True, help="Pass gates in such doubt, as if in the file.")
@click.option("--fail-on", multiple=True, metavar="ID", help="Fail if RUN has this finding (see tracekit explain).")
@click.option("--ignore", multiple=True, metavar="ID=DAY", help="Do not fail on this finding until 2027-01-31, say.")
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps, of all runs.")
@work_options()
@click.option("--github", is_flag=True, help="Print annotations, and append to the summary of the workflow's step.")
@output_options("(.json, .md, .txt, or .xml for JUnit)", several=True)
def check(
    choice: RunChoice,
    baselines: tuple[str, ...],
    gate_file: Path | None,
    allow: tuple[str, ...],
    fail_on: tuple[str, ...],
    ignore: tuple[str, ...],
    steps: StepSelection | None,
    work: KnownWork,
    github: bool,
    as_json: bool,
    outputs: tuple[Path, ...],
    force: bool,
) -> None:
    """Say whether RUN keeps to the gates: limits of the step, of communication, bubbles, stragglers, MFU and memory.

    And whether it has findings that it may not have.

    Exits with 0 if all gates pass, and with 1 if one fails or is in doubt. docs/regression-gates.md has the gates and a
    workflow. Without a file of gates, the step may be at most 5% longer than in the baseline.
    """
    from tracekit.cli.inputs.run_choice import read_reports, refuse_suffixes, write_results
    from tracekit.comparison.comparison import SECTIONS_READ
    from tracekit.gates.evaluation import check as check_gates
    from tracekit.gates.evaluation import require_baseline
    from tracekit.render.gates import SUFFIXES, check_text, render_check

    if as_json and github:
        raise UsageError("--json and --github both print to the terminal", hint="write the JSON with -o check.json")
    refuse_suffixes(outputs, SUFFIXES)
    gates = _gates(gate_file, allow, has_baseline=bool(baselines) or bool(fail_on))
    gates = _with_findings(gates, fail_on, ignore, has_baseline=bool(baselines))
    require_baseline(gates, len(baselines))
    choices = [choice, *(choice.of_path(path) for path in baselines)]
    report, *others = read_reports(choices, steps, gates.sections.union(SECTIONS_READ), work)
    result = check_gates(gates, report, others)
    if as_json:
        echo_json(render_check(result, ".json"))
    elif github or not outputs:
        echo_drawn(check_text(result, **terminal_format()))
    if github:
        _tell_github(result)
    write_results(outputs, lambda suffix: render_check(result, suffix), force=force)
    if not result.passes:
        raise Exit(_EXIT_FAILED)


def _gates(file: Path | None, allow: tuple[str, ...], *, has_baseline: bool) -> Gates:
    """Return the gates of the file, else of this folder, else the default. Raises UsageError without any."""
    from tracekit.gates.gates import DEFAULT_GATES, as_doubts, parse_gates

    config = click.get_current_context().find_root().obj
    table = find_gates(config) if file is None else read_gates(file)
    if table is None and not has_baseline:
        raise UsageError(
            "there is nothing to check: no gates in tracekit.toml or pyproject.toml, and no baseline",
            hint="give --baseline RUN, or write gates (docs/regression-gates.md)",
        )
    gates = DEFAULT_GATES if table is None else parse_gates(*table)
    return replace(gates, allow=gates.allow | as_doubts(allow))


def _with_findings(gates: Gates, fail_on: tuple[str, ...], ignore: tuple[str, ...], *, has_baseline: bool) -> Gates:
    """Return the gates with findings that were given. With them no default gate needs a baseline."""
    from tracekit.gates.gates import DEFAULT_GATES, as_day, as_finding_ids

    try:
        ids, pairs = as_finding_ids(fail_on), [each.partition("=") for each in ignore]
        ignored = {as_finding_ids([name])[0]: as_day(day) for name, _, day in pairs}
    except ValueError as error:
        hint = "tracekit explain lists all ids; write --ignore straggler=2027-01-31"
        raise UsageError(str(error), hint=hint) from None
    if ids and not has_baseline and gates.gates == DEFAULT_GATES.gates:
        gates = replace(gates, gates=(), source="--fail-on")
    return replace(gates, fail_on=(*gates.fail_on, *ids), ignore={**gates.ignore, **ignored})


def _tell_github(result: Check) -> None:
    """Print annotations, and append Markdown to the file that GitHub shows as the summary of the step."""
    from tracekit.errors import OutputError
    from tracekit.render.gates import check_annotations, render_check

    echo_workflow_commands(check_annotations(result))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(render_check(result, ".md"))
        except OSError as error:
            reason = error.strerror or str(error)
            raise OutputError(f"{summary}: {reason}", hint="check GITHUB_STEP_SUMMARY") from None


def find_gates(config: str | None = None) -> GateTable | None:
    """Return the gates of the settings that hold; None if there are none.

    config: the file that `tracekit --config` names. Raises what `find_settings_file` raises, and UsageError for gates
    that are no table.
    """
    file = find_settings_file(config)
    return None if file is None else _table(file)


def read_gates(path: Path) -> GateTable:
    """Return the gates of a file. Raises what `find_gates` raises, and UsageError if it is no file or has no gates."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file of gates", hint="name a TOML file with [gates.step_time] and a limit")
    table = find_gates(str(path))
    if table is None:
        raise UsageError(f"{path}: it has no table of gates", hint="write [gates.step_time] with a limit")
    return table


def _table(file: SettingsFile) -> GateTable | None:
    value = file.content.get(LEFT_TO_CHECK)
    if value is None:
        return None
    is_near = file.path.is_relative_to(Path.cwd())
    path = file.path.relative_to(Path.cwd()) if is_near else file.path
    source = f"{path} [{'tool.tracekit.' if path.name == 'pyproject.toml' else ''}{LEFT_TO_CHECK}]"
    if not isinstance(value, Mapping):
        raise UsageError(f"{source}: it is no table", hint="write [gates.step_time] and a limit, such as max = '200ms'")
    return value, source
