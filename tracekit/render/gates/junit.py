"""The results of gates as JUnit XML, which CI systems show as tests: a test case for each gate.

A gate that is over its limit is a failure. One in doubt is an error, or skipped where its doubt is allowed.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET  # writes XML, and reads none

from tracekit.analysis.gates.evaluation import Check, GateResult
from tracekit.model.safe_text import safe_text
from tracekit.render.gates.texts import outcome_text, result_text

__all__ = ["check_junit"]


def check_junit(check: Check) -> str:
    """Return the XML document. Characters that XML cannot have are escaped as in the terminal."""
    elements = [_element(result) for result in check.results]
    counts = {
        "tests": len(elements),
        "failures": elements.count("failure"),
        "errors": elements.count("error"),
        "skipped": elements.count("skipped"),
    }
    attributes = {"name": "tracekit check"} | {name: str(count) for name, count in counts.items()}
    suites = ET.Element("testsuites", attributes)
    suite = ET.SubElement(suites, "testsuite", attributes)
    for result, element in zip(check.results, elements, strict=True):
        case = ET.SubElement(suite, "testcase", {"classname": f"tracekit.{result.gate.metric.name}"})
        case.set("name", result.gate.name)
        text = safe_text(result_text(result))
        if element is None:
            ET.SubElement(case, "system-out").text = text
        else:
            ET.SubElement(case, element, {"message": text, "type": safe_text(outcome_text(result))})
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _element(result: GateResult) -> str | None:
    """Return the XML element of a result; None for one that passed."""
    if result.status == "passed":
        return None
    if result.allowed:
        return "skipped"
    return "failure" if result.status == "failed" else "error"
