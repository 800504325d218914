"""`tracekit record`: its arguments go to the capture, which works without the packages of the other commands."""

from __future__ import annotations

import click

from tracekit.capture import record as recorder


class _Record(click.Command):
    def get_help(self, ctx: click.Context) -> str:
        return recorder.help_text()


@click.command(cls=_Record, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def record(arguments: tuple[str, ...]) -> None:
    recorder.main(arguments)
