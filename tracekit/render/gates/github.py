"""The results of gates as annotations of a GitHub workflow: commands that a step prints.

Their syntax and escapes: docs.github.com, "Workflow commands for GitHub Actions", and `command.ts` of actions/toolkit.
"""

from __future__ import annotations

from tracekit.analysis.gates.evaluation import Check, GateResult
from tracekit.model.safe_text import safe_text
from tracekit.render.gates.texts import outcome_text, result_text, summary_text

__all__ = ["check_annotations"]


def check_annotations(check: Check) -> str:
    """Return a line for each gate that is over its limit or in doubt, and one for all gates."""
    lines = [_annotation(result) for result in check.results if result.status != "passed"]
    return "\n".join([*lines, _command("notice", "tracekit check", summary_text(check))]) + "\n"


def _annotation(result: GateResult) -> str:
    level = "warning" if result.passes else "error"
    return _command(level, f"tracekit: {result.gate.name}", f"{outcome_text(result)}: {result_text(result)}")


def _command(level: str, title: str, message: str) -> str:
    escaped = _escape(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={escaped}::{_escape(message)}"


def _escape(text: str) -> str:
    return safe_text(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
