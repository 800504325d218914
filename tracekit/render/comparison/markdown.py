"""A comparison as GitHub-flavoured Markdown, for a comment of a pull request."""

from __future__ import annotations

from tracekit.analysis.comparison.comparison import Comparison
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.render.comparison.texts import (
    advice_text,
    cause_text,
    noise_text,
    remark_text,
    run_text,
    runs_text,
    signed_milliseconds,
    verdict_text,
)
from tracekit.render.files.markdown import markdown_folded, markdown_table, markdown_text

__all__ = ["comparison_markdown"]

_SHOWN_CAUSES = 12
_SHOWN_EXPLORED = 20


def comparison_markdown(comparison: Comparison) -> str:
    """Return the verdict, the runs, and tables that fold: causes, what stands out, what else differs."""
    sentences = [verdict_text(comparison), noise_text(comparison), advice_text(comparison), remark_text(comparison)]
    first, *others = [markdown_text(sentence) for sentence in sentences if sentence]
    lines = [f"### {first}", "", *(f"{text}  " for text in others), ""]
    lines += [f"Baseline: {markdown_text(runs_text(comparison.baselines))}  "]
    lines += [f"Candidate: {markdown_text(run_text(comparison.candidate))}", ""]
    causes = [
        (
            cause_text(row),
            milliseconds(row["baseline_ns"]),
            milliseconds(row["candidate_ns"]),
            signed_milliseconds(row["change_ns"]),
        )
        for row in rows_of(comparison, "causes")[:_SHOWN_CAUSES]
    ]
    titles = ("cause", "baseline (ms)", "candidate (ms)", "change (ms)")
    lines += [*markdown_table(titles, causes), ""]
    explored = [
        (
            row["dimension"],
            row["name"],
            milliseconds(row["baseline_ns"]),
            milliseconds(row["candidate_ns"]),
            signed_milliseconds(row["change_ns"]),
            f"{row['adjusted_p_value']:.3g}",
        )
        for row in rows_of(comparison, "explored")
        if row["stands_out"]
    ][:_SHOWN_EXPLORED]
    headings = ("by", "name", *titles[1:], "adjusted p-value")
    table = markdown_table(headings, explored, left=2) if explored else []
    lines += markdown_folded("What stands out (exploratory: a hint where to look, no verdict)", table)
    differences = [
        (row["what"], row["baseline"] or "not recorded", row["candidate"] or "not recorded")
        for row in rows_of(comparison, "differences")
    ]
    table = markdown_table(("what", "baseline", "candidate"), differences, left=3) if differences else []
    lines += markdown_folded("What else differs between the runs", table)
    return "\n".join(lines).rstrip("\n") + "\n"
