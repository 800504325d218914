"""A report, or a run, as a fragment of HTML that a notebook shows: one screen, for any number of ranks.

Text of a run is escaped and of limited length. Colours suit light and dark themes; each part of a bar has its number.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

from tracekit.explain.step_time.step_lengths import mean_step_ns
from tracekit.findings.finding import Finding
from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.model.texts import milliseconds, safe_text, shortened
from tracekit.render.answer import finding_facts, sentences
from tracekit.render.console import headline
from tracekit.render.grid import Grid
from tracekit.render.palette import LOOKS
from tracekit.render.run_info import ranks_grid
from tracekit.report.report import Report
from tracekit.report.shown_ranks import SHOWN_RANKS, ranks_to_show

_SHOWN_FINDINGS = 3
_LONGEST_TEXT = 300
_WIDTH = 120  # characters of a line of the headline
_SEGMENTS = (
    ("compute", LOOKS["compute"].colour),
    ("exposed communication", LOOKS["communication"].colour),
    ("exposed copies", LOOKS["copy"].colour),
    ("idle", LOOKS["idle"].colour),
)
_TABLE = '<table style="font-size:inherit;border-collapse:collapse">'
_CELL = 'style="text-align:right;padding:0 .6em;white-space:nowrap"'


def report_html(report: Report) -> str:
    """Return the headline, the first findings, where the step of some ranks goes, and what to type next."""
    step_ns = mean_step_ns(report.run)
    shown = report.findings[:_SHOWN_FINDINGS]
    findings = "".join(_finding(finding, step_ns) for finding in shown)
    more = len(report.findings) - len(shown)
    also = f"<div>{more} more: <code>report.findings</code></div>" if more else ""
    next_line = (
        "<code>report.tables</code>, <code>report.plot.breakdown()</code>, <code>report.write('report.md')</code>"
    )
    return screen(
        _head(report.run),
        f'<ol style="margin:.4em 0;padding-left:1.6em">{findings}</ol>{also}',
        _bar_table(rank_bars(report.run, ranks_to_show(report, SHOWN_RANKS)), len(report.run.ranks)),
        _notes(report.run),
        f"<div>Next: {next_line}</div>",
    )


def run_html(run: Run) -> str:
    """Return the headline, the first ranks with their steps and clocks, and what to type next."""
    return screen(
        _head(run),
        html_table(ranks_grid(run, SHOWN_RANKS)),
        _notes(run),
        "<div>Next: <code>tracekit.analyze(run)</code></div>",
    )


def html_table(grid: Grid) -> str:
    """Return a table below its title."""
    lines = [("th", grid.heads), *(("td", row) for row in grid.rows)]
    rows = ("".join(f"<{mark} {_CELL}>{html_text(cell)}</{mark}>" for cell in cells) for mark, cells in lines)
    title = f'<caption style="text-align:left">{html_text(grid.title)}</caption>'
    return f"{_TABLE}{title}{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def screen(*blocks: str) -> str:
    """Return blocks below each other, as wide as is easily read."""
    return f'<div style="max-width:60em;font-size:.95em;line-height:1.4">{"".join(blocks)}</div>'


def _head(run: Run) -> str:
    name, *facts = headline(run, _WIDTH).plain.split("\n")
    return f"<div><b>{html_text(name)}</b></div>{''.join(f'<div>{html_text(fact)}</div>' for fact in facts)}"


def _finding(finding: Finding, step_ns: float) -> str:
    facts = sentences(finding_facts(finding, step_ns))
    return f"<li><b>{html_text(finding.text)}</b>{f'<br>{html_text(facts)}' if facts else ''}</li>"


@dataclass(frozen=True, kw_only=True)
class RankBar:
    """The mean step of a rank: `shares` of `_SEGMENTS`. Communication and copies count where compute hides none."""

    rank: int
    step_ns: float
    shares: tuple[float, ...]


def rank_bars(run: Run, ranks: Iterable[int]) -> list[RankBar]:
    """Return the bars of ranks that completed a step."""
    wanted, result = set(ranks), []
    for summary in run.ranks:
        steps = [step for step in summary.steps if step.complete]
        if summary.rank not in wanted or not steps:
            continue
        total_ns = max(sum(step.step_ns for step in steps), 1)
        parts = ((step.compute_ns, step.exposed_comm_ns, step.exposed_copy_ns, step.idle_ns) for step in steps)
        shares = tuple(sum(part) / total_ns for part in zip(*parts, strict=True))
        result.append(RankBar(rank=summary.rank, step_ns=total_ns / len(steps), shares=shares))
    return result


def _bar_table(shown: list[RankBar], ranks: int) -> str:
    if not shown:
        return ""
    segments = [segment for at, segment in enumerate(_SEGMENTS) if any(bar.shares[at] >= 0.005 for bar in shown)]
    swatch = "display:inline-block;width:.8em;height:.8em;background:{}"
    heads = "".join(f'<th {_CELL}><span style="{swatch.format(color)}"></span> {name}</th>' for name, color in segments)
    rows = []
    for bar in shown:
        shares = [(bar.shares[_SEGMENTS.index(segment)], segment[1]) for segment in segments]
        bars = "".join(f'<div style="width:{share:.2%};background:{color}"></div>' for share, color in shares)
        cells = "".join(f"<td {_CELL}>{share:.0%}</td>" for share, _ in shares)
        rows.append(
            f"<tr><td {_CELL}>{bar.rank}</td><td {_CELL}>{milliseconds(bar.step_ns)}</td>"
            f'<td><div style="display:flex;width:16em;height:1em">{bars}</div></td>{cells}</tr>'
        )
    only = f"<div>{len(shown)} of {ranks} ranks</div>" if len(shown) < ranks else ""
    return (
        f"{_TABLE}<tr><th {_CELL}>rank</th><th {_CELL}>step, ms</th><th></th>{heads}</tr>{''.join(rows)}</table>{only}"
    )


def _notes(run: Run) -> str:
    grave: list[Note] = [note for note in run.notes if note.severity != "info"]
    if not grave:
        return ""
    more = f" (and {len(grave) - 1} more: <code>run.notes</code>)" if len(grave) > 1 else ""
    return f"<div>! {html_text(grave[0].text)}{more}</div>"


def html_text(text: str) -> str:
    """Return a text of a run, escaped and of limited length."""
    return html.escape(safe_text(shortened(text, _LONGEST_TEXT)))
