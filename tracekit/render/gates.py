"""The results of gates in each format: JSON, annotations of a GitHub workflow, JUnit XML, Markdown, the terminal.

* Annotations are commands that a step of the workflow prints. Their syntax and escapes: docs.github.com, "Workflow
  commands for GitHub Actions", and `command.ts` of actions/toolkit.
* JUnit XML has a test case for each gate, which CI systems show as a test. A gate that is over its limit is a failure.
  One in doubt is an error, or skipped where its doubt is allowed.
* Markdown is GitHub-flavoured: a table, and below it the comparison with the baseline.
* The terminal shows a line or two for each gate, and the sum.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET  # writes XML, and reads none
from typing import TYPE_CHECKING, Any

from tracekit.gates.evaluation import Check, FindingResult, GateResult
from tracekit.gates.metrics import Unit
from tracekit.model.texts import count_text, file_size, milliseconds, percent, safe_text, unicode_text
from tracekit.render.answer import wrapped_lines
from tracekit.render.comparison.document import change_range, comparison_dict, run_text, runs_text
from tracekit.render.comparison.outputs import comparison_markdown
from tracekit.render.console import write
from tracekit.render.files.markdown import markdown_table, markdown_text
from tracekit.render.grid import Grid
from tracekit.render.json_result import json_document

if TYPE_CHECKING:
    from rich.text import Text


SUFFIXES = (".json", ".md", ".txt", ".xml")
_INDENT = "  "


def render_check(check: Check, suffix: str) -> str:
    """Return the results in the format of a suffix, one of `SUFFIXES`."""
    renderers = {".json": check_json, ".md": check_markdown, ".xml": check_junit}
    return renderers[suffix](check) if suffix in renderers else check_text(check, width=80, color=False)


def check_json(check: Check) -> str:
    """Return the results as a JSON document with sorted keys; `comparison` is null without a comparable baseline."""
    return json_document(
        {
            "passed": check.passes,
            "run": {"path": unicode_text(check.run.path), "run_id": check.run.run_id, "attempt": check.run.attempt},
            "gates_from": check.gates.source,
            "allowed": sorted(check.gates.allow),
            "gates": [_gate(result) for result in check.results],
            "findings": [
                {
                    "id": result.id,
                    "status": result.status,
                    "passes": result.passes,
                    "texts": list(result.texts),
                    "ignored_until": None if result.ignored_until is None else str(result.ignored_until),
                    "reason": result.reason,
                }
                for result in check.findings
            ],
            "comparison": None if check.comparison is None else comparison_dict(check.comparison),
        }
    )


def _gate(result: GateResult) -> dict[str, Any]:
    gate, change = result.gate, result.change
    return {
        "gate": gate.name,
        "metric": gate.metric.name,
        "unit": {"time": "ns", "ratio": "ratio", "bytes": "bytes"}[gate.metric.unit],
        "limit_kind": gate.kind,
        "limit": gate.limit,
        "status": result.status,
        "passes": result.passes,
        "value": _number(result.value, gate.metric.unit),
        "baseline": _number(result.baseline, gate.metric.unit),
        "change": result.change_share,
        "change_low": None if change is None or change.low is None else change.low - 1,
        "change_high": None if change is None or change.high is None else change.high - 1,
        "reason": result.reason,
        "steps_needed": result.steps_needed,
    }


def _number(value: float | None, unit: Unit) -> float | None:
    """Return ns and bytes as whole numbers."""
    return value if value is None or unit == "ratio" else round(value)


def check_annotations(check: Check) -> str:
    """Return a line for each gate that is over its limit or in doubt, and one for all gates."""
    lines = [_annotation(result) for result in check.all_results if result.status != "passed"]
    return "\n".join([*lines, _command("notice", "tracekit check", _summary_text(check))]) + "\n"


def _annotation(result: GateResult | FindingResult) -> str:
    level = "warning" if result.passes else "error"
    return _command(level, f"tracekit: {result.name}", f"{_outcome_text(result)}: {_result_text(result)}")


def _command(level: str, title: str, message: str) -> str:
    escaped = _escape(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={escaped}::{_escape(message)}"


def _escape(text: str) -> str:
    return safe_text(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def check_junit(check: Check) -> str:
    """Return the XML document. Characters that XML cannot have are escaped as in the terminal."""
    elements = [_element(result) for result in check.all_results]
    counts = {
        "tests": len(elements),
        "failures": elements.count("failure"),
        "errors": elements.count("error"),
        "skipped": elements.count("skipped"),
    }
    attributes = {"name": "tracekit check"} | {name: str(count) for name, count in counts.items()}
    suites = ET.Element("testsuites", attributes)
    suite = ET.SubElement(suites, "testsuite", attributes)
    for result, element in zip(check.all_results, elements, strict=True):
        case = ET.SubElement(suite, "testcase", {"classname": f"tracekit.{result.name.partition('.')[0]}"})
        case.set("name", result.name)
        text = safe_text(_result_text(result))
        if element is None:
            ET.SubElement(case, "system-out").text = text
        else:
            ET.SubElement(case, element, {"message": text, "type": safe_text(_outcome_text(result))})
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _element(result: GateResult | FindingResult) -> str | None:
    """Return the XML element of a result; None for one that passed."""
    if result.status == "passed":
        return None
    if result.allowed:
        return "skipped"
    return "failure" if result.status == "failed" else "error"


def check_markdown(check: Check) -> str:
    rows = [
        ("✅" if result.passes else "❌", result.name, _outcome_text(result), _result_text(result))
        for result in check.all_results
    ]
    lines = [f"## tracekit check {markdown_text(_summary_text(check))}", ""]
    heads = ("", "gate", "outcome", "measured")
    lines += [*markdown_table(Grid(title="Gates", heads=heads, left=[True] * len(heads), rows=rows)), ""]
    if check.comparison is None:
        lines.append(f"Run: {markdown_text(run_text(check.run))}")
        return "\n".join(lines) + "\n"
    return "\n".join([*lines, comparison_markdown(check.comparison)])


def check_text(check: Check, *, width: int, color: bool) -> str:
    lines = wrapped_lines(run_text(check.run), "run        ", width, None, "")
    if check.comparison is not None:
        lines += wrapped_lines(runs_text(check.comparison.baselines), "baseline   ", width, None, "")
    for result in check.all_results:
        lines += _lines(result, width)
    lines += wrapped_lines(_summary_text(check), "", width, None, "bold")
    return write(lines, width=width, color=color)


def _lines(result: GateResult | FindingResult, width: int) -> list[Text]:
    style = "" if result.status == "passed" else "yellow" if result.passes else "bold red"
    mark = "pass" if result.passes else "FAIL"
    outcome = f": {_outcome_text(result)}" if result.reason is not None else ""
    head = wrapped_lines(f"{result.name}{outcome}", f"{mark}  ", width, None, style)
    return head + wrapped_lines(_result_text(result), f"{_INDENT}    ", width, None, "")


def _value_text(value: float, unit: Unit) -> str:
    """Return `184.60 ms`, `12.3%` or `40 GB`."""
    if unit == "time":
        return f"{milliseconds(value)} ms"
    return file_size(value) if unit == "bytes" else percent(value, 1)


def _limit_text(result: GateResult) -> str:
    """Return `at most +5%` or `at least 40.0%`."""
    gate = result.gate
    side = "at least" if gate.metric.worse == "lower" else "at most"
    if not gate.is_relative:
        return f"{side} {_value_text(gate.limit, gate.metric.unit)}"
    sign = "+" if gate.kind == "max_increase" else "-"
    return f"{side} {sign}{gate.limit * 100:.3g}%"


def _outcome_text(result: GateResult | FindingResult) -> str:
    """Return passed, failed, or the doubt with what it counts as."""
    if result.status == "failed" and result.allowed:
        return "failed, ignored"
    if result.status in {"passed", "failed"}:
        return result.status
    return f"{result.status}, {'allowed' if result.allowed else 'so failed'}"


def _result_text(result: GateResult | FindingResult) -> str:
    """Return the value, the change and the limit in one sentence, with the reason where the gate is in doubt.

    Of a finding, what it says.
    """
    if isinstance(result, FindingResult):
        said = result.texts or (("the run has no such finding",) if result.status == "passed" else ())
        return "; ".join([*said, *([result.reason] if result.reason is not None else [])])
    unit = result.gate.metric.unit
    phrases = [] if result.value is None else [_value_text(result.value, unit)]
    if result.baseline is not None and result.change_share is not None:
        change = percent(result.change_share, 1, "+")
        interval = "" if result.change is None else f", interval {change_range(result.change)}"
        phrases.append(f"against {_value_text(result.baseline, unit)}: {change}{interval}")
    measured = " ".join(phrases)
    reason = "" if result.reason is None else result.reason
    if result.steps_needed is not None:
        reason += f"; about {result.steps_needed} steps in each run would decide"
    return "; ".join(phrase for phrase in (measured, f"limit {_limit_text(result)}", reason) if phrase)


def _summary_text(check: Check) -> str:
    """Return how many gates pass, in one line."""
    passing = sum(result.passes for result in check.all_results)
    count = len(check.all_results)
    passes = "passes" if count == 1 else "pass"
    outcome = "passed" if check.passes else "failed"
    return f"{outcome}: {passing} of {count_text(count, 'gate')} {passes} ({check.gates.source})"
