"""`tracekit hta`: the analyses of Holistic Trace Analysis on what tracekit has read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.inputs.echo import echo_drawn, shown
from tracekit.cli.inputs.options import Command, output_options, text_format
from tracekit.cli.inputs.run_choice import RunChoice, refuse_suffixes, run_options, write_result
from tracekit.hta.analyses import ANALYSES, HtaRequest, HtaResult, run_analysis
from tracekit.hta.package import import_bridge, quiet, rounding, to_hta
from tracekit.model.texts import safe_text, shortened, unicode_text
from tracekit.render.json_result import json_document
from tracekit.render.query_result import query_csv, query_text

if TYPE_CHECKING:
    import pandas as pd


_ALL = "all"
_SUFFIXES = (".csv", ".json", ".txt")

_SHOWN_ROWS = 20
_LONGEST_TEXT = 32


@click.command(cls=Command)
@run_options()
@click.argument("analysis", metavar="ANALYSIS", type=click.Choice([*ANALYSES, _ALL]))
@click.option("--last-step", is_flag=True, help="Keep the profiler's last step, which HTA leaves out.")
@click.option("--nanoseconds", is_flag=True, help="Do not round times to whole microseconds, as HTA does.")
@click.option("--annotation", default="ProfilerStep", metavar="TEXT", help="critical-path: of this annotation.")
@click.option("--instance", type=click.IntRange(min=0), default=0, metavar="N", help="critical-path: which one.")
@click.option("--against", metavar="RUN", help="trace-diff: compare with this run.")
@output_options("(.csv, .json or .txt)")
def hta(
    choice: RunChoice,
    analysis: str,
    last_step: bool,
    nanoseconds: bool,
    annotation: str,
    instance: int,
    against: str | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Run an analysis of Holistic Trace Analysis (HTA) on a run.

    HTA gets its tables from tracekit's decoder, which takes a small part of the time that HTA's own parser takes.
    Results are HTA's. What HTA cannot do is said with its own error.

    \b
      kernel-breakdown    time by type of kernel and rank
      temporal-breakdown  idle, compute, other time by rank
      idle-time           idle time of streams by cause
      overlap             communication under compute, in %
      queue-length        launched kernels that wait
      memory-bandwidth    GB/s of copies and memsets
      launch-statistics   durations and delay of launches
      counters            CUPTI counters, with operators
      critical-path       the critical path of a step
      trace-diff          operators of two runs, or steps
      all                 all of these

    With -o idle.csv several tables become several files.

    \b
      tracekit hta runs/ idle-time -o idle.csv
    """
    from tracekit.errors import InputError
    from tracekit.loading.options import SummaryOptions

    suffix = ".json" if as_json else ".txt" if output is None else output.suffix
    refuse_suffixes([] if output is None else [output], [".json"] if as_json else _SUFFIXES)
    with quiet():
        import_bridge("trace")
    options = SummaryOptions(sections=frozenset())
    others = [] if against is None else [choice.of_path(against)]
    if choice.anonymize:
        pseudonyms = choice.pseudonyms_with(*others)
        from tracekit.read.decode.anonymous.annotations import anonymous_annotation

        annotation = anonymous_annotation(annotation, pseudonyms)
        choice, *others = (replace(each, anonymize=pseudonyms) for each in (choice, *others))
    run, *loaded = (each.load(options) for each in (choice, *others))
    other = loaded[0] if loaded else None
    with quiet(), rounding(enabled=not nanoseconds):
        request = HtaRequest(
            load=lambda: to_hta(run, include_last_step=last_step),
            analysis=to_hta(run, include_last_step=last_step),
            against=None if other is None else lambda: to_hta(other, include_last_step=last_step),
            annotation=annotation,
            instance=instance,
        )
        names = tuple(ANALYSES) if analysis == _ALL else (analysis,)
        results = {name: run_analysis(name, request) for name in names}
    if analysis != _ALL and results[analysis].error:
        hint = "it is an error of HTA, not of the run; tracekit analyze needs no HTA"
        raise InputError(f"{analysis}: HTA fails with {results[analysis].error}", hint=hint)
    _show(results, suffix, " ".join(choice.shown_paths), output, force=force)


def _show(results: Mapping[str, HtaResult], suffix: str, path: str, output: Path | None, *, force: bool) -> None:
    texts: dict[Path | None, str] = {}
    if suffix == ".csv":
        assert output is not None
        tables = [(f"{name} {title}", frame) for name, each in results.items() for title, frame in each.tables.items()]
        texts |= {_file(output, title, alone=len(tables) == 1): hta_csv(frame) for title, frame in tables}
        without = {name: result for name, result in results.items() if not result.tables}
        echo_drawn(shown(hta_text(without, width=80, color=False)), err=True)
    elif suffix == ".json":
        texts[output] = hta_json(results, path=path)
    else:
        texts[output] = shown(hta_text(results, **text_format(output)))
    for file, text in texts.items():
        write_result(file, text, is_json=suffix == ".json", force=force)


def _file(output: Path, title: str, *, alone: bool) -> Path:
    """Return the file of a table: the one that was asked for, or one beside it with the table's name."""
    return output if alone else output.with_name(f"{output.stem}-{title.replace(' ', '-')}{output.suffix}")


def hta_text(results: Mapping[str, HtaResult], *, width: int, color: bool) -> str:
    """Return the first rows of each table, HTA's errors and, where there is no table, HTA's remarks."""
    texts = []
    for name, result in results.items():
        for title, frame in result.tables.items():
            columns, rows = _columns_and_rows(frame.head(_SHOWN_ROWS))
            short = [[_shorten(cell) for cell in row] for row in rows]
            *lines, _ = query_text(columns, short, width=width, color=color).splitlines()
            texts.append("\n".join([f"{name}: {safe_text(title)}", *lines, _count(len(frame)), ""]))
        if result.error:
            texts.append(f"{name}: HTA fails with {safe_text(result.error)}\n")
        elif not result.tables:
            reason = safe_text(result.remarks[-1]) if result.remarks else "no reason given"
            texts.append(f"{name}: HTA has no result ({reason})\n")
    return "\n".join(texts)


def hta_json(results: Mapping[str, HtaResult], *, path: str) -> str:
    """Return a JSON object; each table is a list of objects."""
    analyses = {
        name: {
            "tables": {title: _objects(frame) for title, frame in result.tables.items()},
            "error": result.error or None,
            "remarks": [*result.remarks],
        }
        for name, result in results.items()
    }
    return json_document({"path": unicode_text(path), "analyses": analyses}, sort_keys=False)


def hta_csv(frame: pd.DataFrame) -> str:
    """Return a table as CSV."""
    return query_csv(*_columns_and_rows(frame))


def _shorten(cell: Any) -> Any:
    """Return a cell for a terminal: six digits, and the beginning of a long text."""
    if isinstance(cell, float):
        return float(f"{cell:.6g}")
    return shortened(cell, _LONGEST_TEXT) if isinstance(cell, str) else cell


def _count(rows: int) -> str:
    shown = f" (the first {_SHOWN_ROWS} are shown; -o FILE.csv or FILE.json has all)" if rows > _SHOWN_ROWS else ""
    return f"{rows:,} row{'s' * (rows != 1)}{shown}"


def _objects(frame: pd.DataFrame) -> list[dict[str, Any]]:
    columns, rows = _columns_and_rows(frame)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _columns_and_rows(frame: pd.DataFrame) -> tuple[list[str], list[list[Any]]]:
    columns = [[_cell(value) for value in frame[name].tolist()] for name in frame.columns]
    rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
    return [str(name) for name in frame.columns], [[*row] for row in rows]


def _cell(value: Any) -> Any:
    """Return a value of a table as an integer, a float, text or None."""
    if value is None or value != value:  # NaN alone differs from itself
        return None
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) != float("inf") else None
    return str(value)
