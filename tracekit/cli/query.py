"""`tracekit query`: PerfettoSQL over the merged trace of a run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from tracekit.cli.inputs.echo import echo, echo_drawn
from tracekit.cli.inputs.merged_run import perfetto_trace
from tracekit.cli.inputs.options import Command, output_options, terminal_format, text_format
from tracekit.cli.inputs.run_choice import RunChoice, refuse_suffixes, run_options, write_result


def _print_views(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value:
        return
    from rich.table import Table

    from tracekit.render.console import text_line, write
    from tracekit.trace_processor import views_sql
    from tracekit.trace_processor.views import parse_views

    blocks: list[object] = []
    for view in parse_views(views_sql()):
        columns = Table.grid(padding=(0, 1))
        for column in view.columns:
            columns.add_row("", *column)
        blocks += [text_line(view.name, "bold"), view.meaning, columns, ""]
    echo_drawn(write(blocks[:-1], **terminal_format()))
    ctx.exit()


class _TwoArguments(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """click fills the last argument first, and would miss RUN where SQL was forgotten."""
        typed = [*args]  # click empties the list
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter:
            from tracekit.errors import UsageError

            asked = shlex.join(["tracekit", "query", *(typed or ["runs/"]), "select * from tracekit_steps"])
            hint = f"see what can be asked with tracekit query --views, and ask, as in: {asked}"
            raise UsageError("a query takes a run, or a merged trace, and the SQL to ask it", hint=hint) from None


@click.command(cls=_TwoArguments)
@run_options()
@click.argument("sql", metavar="SQL")
@click.option("--views", is_flag=True, is_eager=True, expose_value=False, callback=_print_views,
              help="List tracekit's views and their columns.")  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV.")
@output_options("(.json, .csv or .txt)")
def query(choice: RunChoice, sql: str, as_json: bool, as_csv: bool, output: Path | None, force: bool) -> None:
    """Query the merged trace in PerfettoSQL.

    RUN is what merge takes, or one merged trace. SQL is text, a file that ends in .sql, or - for stdin. Of several
    statements, the rows of the last one are shown. In addition to Perfetto's tables there are tracekit's views, named
    tracekit_...

    \b
      time      ranks, steps, phases, lanes
      work      collectives, point_to_point, kernels
      parallel  buckets, actions, bubbles
      waiting   waits, lateness, ranks_waiting
      found     findings, critical_path
      values    counters, busbw, memory
      all       slices, run_slices, tracks

    \b
      tracekit query run.pftrace "select rank, step, dur from tracekit_steps"
    """
    from tracekit.errors import UsageError
    from tracekit.render.query_result import query_csv, query_json, query_text
    from tracekit.trace_processor import open_trace_processor, views_sql

    if as_json and as_csv:
        raise UsageError("--json and --csv: a result has one form", hint="leave one out")
    suffix = ".json" if as_json else ".csv" if as_csv else ".txt" if output is None else output.suffix
    if output is not None and output.is_dir():
        named = shlex.quote(str(output / "rows.csv"))
        raise UsageError(f"-o {output}: a folder", hint=f"name the file, too: -o {named}")
    wanted = [suffix] if as_json or as_csv else [".json", ".csv", ".txt"]
    refuse_suffixes([] if output is None else [output], wanted)
    statements = _statements(sql)
    with open_trace_processor() as processor, perfetto_trace(choice) as trace:
        processor.load(trace.stream)
        for error in processor.errors():
            echo(f"Perfetto reports errors in the trace: {error['name']} {error['value']:,}", err=True)
        processor.ask(views_sql())
        answer = processor.ask(statements)
    if suffix == ".json":
        text = query_json(answer.columns, answer.rows, path=" ".join(choice.shown_paths))
    elif suffix == ".csv":
        text = query_csv(answer.columns, answer.rows)
    else:
        text = query_text(answer.columns, answer.rows, **text_format(output))
    write_result(output, text, is_json=suffix == ".json", force=force)
    if output is None and suffix == ".txt":
        if trace.is_merged:
            echo()
            echo("The run was merged for this query alone; a file that is kept answers at once.")
            following = ["merge", *choice.argv, "-o", "run.pftrace"]
        else:
            following = ["open", *choice.argv]
        echo(f"Next: {shlex.join(['tracekit', *following])}")


def _statements(sql: str) -> str:
    """Return the SQL that was given as text, in a file or on stdin."""
    from tracekit.errors import InputError
    from tracekit.read.files.storage import read_small_file, read_small_stream

    name = "stdin" if sql == "-" else sql
    try:
        if sql == "-":
            return read_small_stream(sys.stdin.buffer, name).decode()
        return read_small_file(Path(sql)).decode() if sql.endswith(".sql") else sql
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: {getattr(error, 'strerror', error)}", hint="give SQL in UTF-8") from None
