"""`tracekit config`: which settings hold, and where they come from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from tracekit.cli.inputs.echo import echo_drawn, echo_json
from tracekit.cli.inputs.options import terminal_format


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the settings as JSON.")
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Show which settings hold and where they come from.

    An option precedes a variable of the environment, and the variable precedes a file: the nearest tracekit.toml, or
    the table [tool.tracekit] of pyproject.toml, in this folder or one above it. tracekit --config FILE takes another.
    """
    from tracekit.cli.inputs.settings import KEYS, OTHER_VARIABLES, settings, similar_name
    from tracekit.model.texts import safe_text
    from tracekit.render.console import table, write

    in_effect = settings(ctx.obj)
    others = {name: value for name, value in sorted(os.environ.items()) if name in OTHER_VARIABLES}
    known = [*(key.variable for key in KEYS), *OTHER_VARIABLES]
    unknown = [name for name in sorted(os.environ) if name.startswith("TRACEKIT_") and name not in known]
    if as_json:
        document = {
            "settings": {s.key.name: {"value": s.value, "from": s.source} for s in in_effect},
            "variables": others,
            "unknown_variables": unknown,
        }
        echo_json(json.dumps(document, indent=1) + "\n")
        return
    files = {s.source for s in in_effect} - {s.key.variable for s in in_effect} - {None}
    title = f"Settings, with those of {safe_text(str(files.pop()))}" if files else "Settings, none of them from a file"
    rows = [
        (
            setting.key.name,
            setting.key.default if setting.value is None else _text(setting.value),
            "default" if setting.source is None else Path(setting.source).name,
        )
        for setting in in_effect
    ]
    blocks = table(title, ("setting", "value", "from"), rows, left=3)
    if others:
        variables = [(name, value, OTHER_VARIABLES[name]) for name, value in others.items()]
        blocks += table("Other variables", ("variable", "value", "what it chooses"), variables, left=3)
    blocks += [f"{safe_text(name)} is no variable of tracekit.{similar_name(name, known)}" for name in unknown]
    echo_drawn(write(blocks, **terminal_format()))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else "none" if value == "0" else str(value)
