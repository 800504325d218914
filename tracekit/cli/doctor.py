"""`tracekit doctor`: show what is installed, what works, and the command that gets what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from click.exceptions import Exit
from rich import box
from rich.table import Table
from rich.text import Text

from tracekit.checks import Check, examine
from tracekit.cli.inputs.echo import echo_drawn
from tracekit.cli.inputs.options import terminal_format
from tracekit.render.console import write

_FAILED = 1


@click.command()
def doctor() -> None:
    """Check this installation and name what is missing.

    The exit code is 1 when something that is needed does not work; extras that are not installed are no problem.
    """
    checks = examine()
    # Commands are to be copied: a line each, however narrow the terminal.
    advice = (Text(line, no_wrap=True) for line in advise(checks))
    echo_drawn(write([draw(checks), *advice], **terminal_format()))
    if any(check.state == "problem" for check in checks):
        raise Exit(_FAILED)


def draw(checks: Iterable[Check]) -> Table:
    """Return what was found as a table. Nothing in it is read as markup."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("found", overflow="fold")
    signs = {"ok": Text("ok", "green"), "absent": Text("-", "dim"), "problem": Text("!!", "bold red")}
    for check in checks:
        table.add_row(signs[check.state], Text(check.name), Text(check.found))
    return table


def advise(checks: Sequence[Check]) -> list[str]:
    """Return a line for each remedy, problems first; then the next command."""
    lines = []
    for state, title in (("problem", "To mend:"), ("absent", "To add:")):
        remedies = [check for check in checks if check.state == state and check.remedy]
        width = max((len(check.name) for check in remedies), default=0)
        lines += ["", title] * bool(remedies)
        lines += [f"  {check.name:{width}}  {check.remedy}" for check in remedies]
    has_torch = any(check.name == "torch" and check.state == "ok" for check in checks)
    return [*lines, "", "Next: tracekit demo" if has_torch else "Next: tracekit analyze --help"]
