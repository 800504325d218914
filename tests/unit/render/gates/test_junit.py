"""Results of gates as JUnit XML, read back."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tests.unit.render.gates.checked import CHECK, HOSTILE_CHECK
from tracekit.render.gates import check_junit


def test_each_gate_is_a_test_case() -> None:
    suite = ET.fromstring(check_junit(CHECK))[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    outcomes = {case.get("name"): case[0].tag for case in suite}
    assert outcomes == {
        "step_time.max": "system-out",
        "step_time.max_increase": "error",
        "exposed_comm_ratio.max": "failure",
        "peak_memory.max": "skipped",
    }


def test_a_failure_says_what_was_measured() -> None:
    suite = ET.fromstring(check_junit(CHECK))[0]
    (failure,) = suite.findall("./testcase/failure")
    assert failure.get("message") == "9.5%; limit at most 5.0%"


def test_names_of_runs_cannot_break_the_document() -> None:
    suite = ET.fromstring(check_junit(HOSTILE_CHECK))[0]
    (error,) = suite.findall("./testcase/error")
    assert "<x>&\\x1b" in str(error.get("message"))
