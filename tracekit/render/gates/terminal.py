"""The results of gates in the terminal: a line or two for each, and the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis.gates.evaluation import Check, GateResult
from tracekit.render.answer import wrapped_lines
from tracekit.render.comparison.texts import line_of, run_text, runs_text
from tracekit.render.console import write
from tracekit.render.gates.texts import outcome_text, result_text, summary_text

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["check_text"]

_INDENT = "  "


def check_text(check: Check, *, width: int, color: bool) -> str:
    lines = [_text(line_of("run", run_text(check.run), width))]
    if check.comparison is not None:
        lines.append(_text(line_of("baseline", runs_text(check.comparison.baselines), width)))
    for result in check.results:
        lines += _lines(result, width)
    lines += wrapped_lines(summary_text(check), "", width, 2, "bold")
    return write(lines, width=width, color=color)


def _lines(result: GateResult, width: int) -> list[Text]:
    style = "" if result.status == "passed" else "yellow" if result.passes else "bold red"
    mark = "pass" if result.passes else "FAIL"
    outcome = f": {outcome_text(result)}" if result.reason is not None else ""
    head = wrapped_lines(f"{result.gate.name}{outcome}", f"{mark}  ", width, 1, style)
    return head + wrapped_lines(result_text(result), f"{_INDENT}    ", width, 3, "")


def _text(text: str) -> Text:
    from rich.text import Text

    return Text(text)
