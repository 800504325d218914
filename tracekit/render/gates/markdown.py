"""The results of gates as GitHub-flavoured Markdown: a table, and below it the comparison with the baseline."""

from __future__ import annotations

from tracekit.analysis.gates.evaluation import Check
from tracekit.render.comparison.markdown import comparison_markdown
from tracekit.render.comparison.texts import run_text
from tracekit.render.files.markdown import markdown_table, markdown_text
from tracekit.render.gates.texts import outcome_text, result_text, summary_text

__all__ = ["check_markdown"]


def check_markdown(check: Check) -> str:
    rows = [
        ("✅" if result.passes else "❌", result.gate.name, outcome_text(result), result_text(result))
        for result in check.results
    ]
    lines = [f"## tracekit check {markdown_text(summary_text(check))}", ""]
    lines += [*markdown_table(("", "gate", "outcome", "measured"), rows, left=4), ""]
    if check.comparison is None:
        lines.append(f"Run: {markdown_text(run_text(check.run))}")
        return "\n".join(lines) + "\n"
    return "\n".join([*lines, comparison_markdown(check.comparison)])
