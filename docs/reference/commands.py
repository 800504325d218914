"""What each command takes, as its `--help` prints it."""

from __future__ import annotations

import click

from tracekit.cli import COMMANDS, cli

__all__ = ["command_pages"]

_WIDTH = 78  # of a block of code in the page


def command_pages() -> str:
    """Return a chapter for each command."""
    chapters = []
    for name, line in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        context = click.Context(command, info_name=f"tracekit {name}", terminal_width=_WIDTH, max_content_width=_WIDTH)
        chapters.append(f"## {name}\n\n{line}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(chapters)
