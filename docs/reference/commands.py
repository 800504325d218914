"""What each command takes, as its `--help` prints it."""

from __future__ import annotations

import click

from tracekit.cli import COMMANDS, cli

__all__ = ["command_pages"]

_WIDTH = 78  # of a block of code in the page


def command_pages() -> str:
    """Return a chapter for the program and one for each command."""
    program = _context(cli, "tracekit", None)
    chapters = [f"## tracekit\n\n{_block(program)}"]
    for name in COMMANDS:
        command = cli.get_command(program, name)
        assert command is not None, name
        context = _context(command, name, program)
        blocks = [_block(context)]
        if isinstance(command, click.Group):
            blocks += [
                _block(_context(each, each_name, context)) for each_name, each in sorted(command.commands.items())
            ]
        chapters.append("\n\n".join([f"## {name}", *blocks]))
    return "\n\n".join(chapters)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {**command.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    return click.Context(command, info_name=name, parent=parent, **settings)


def _block(context: click.Context) -> str:
    return f"```text\n{context.command.get_help(context)}\n```"
