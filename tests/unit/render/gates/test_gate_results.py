"""Results of gates in the terminal, as JSON and as Markdown."""

from __future__ import annotations

import json

from tests.unit.render.gates.checked import CHECK, HOSTILE_CHECK
from tracekit.render.gates import check_json, check_markdown, check_text


def test_the_terminal_has_the_outcome_the_measure_and_the_limit() -> None:
    lines = check_text(CHECK, width=100, color=False).splitlines()
    assert "pass  step_time.max" in lines
    assert "      105.00 ms; limit at most 200.00 ms" in lines
    assert "FAIL  step_time.max_increase: inconclusive, so failed" in lines
    assert any(line.startswith("      105.00 ms against 100.00 ms: +5.0%, interval +") for line in lines)
    assert "pass  peak_memory.max: unavailable, allowed" in lines
    assert lines[-1] == "failed: 2 of 4 gates pass (tracekit.toml [gates])"


def test_json_has_every_number() -> None:
    document = json.loads(check_json(CHECK))
    assert (document["passed"], document["schema_version"]) == (False, 1)
    gates = {gate["gate"]: gate for gate in document["gates"]}
    change = gates["step_time.max_increase"]
    assert change["value"] == 105_000_000
    assert change["baseline"] == 100_000_000
    assert change["change_low"] < change["change"] < change["change_high"]
    assert gates["peak_memory.max"]["value"] is None
    assert gates["peak_memory.max"]["passes"]
    assert document["comparison"]["change"]["change_ns"] == 5_000_000
    assert sum(row["change_ns"] for row in document["comparison"]["causes"]) == 5_000_000


def test_markdown_has_a_row_a_gate_and_the_comparison() -> None:
    text = check_markdown(CHECK)
    assert text.startswith("## tracekit check failed: 2 of 4 gates pass")
    assert "| ✅ | step_time.max | passed | 105.00 ms; limit at most 200.00 ms |" in text
    assert "| ❌ | exposed_comm_ratio.max | failed | 9.5%; limit at most 5.0% |" in text
    assert "### slower: " in text


def test_without_a_comparable_baseline_the_reason_is_told() -> None:
    assert json.loads(check_json(HOSTILE_CHECK))["comparison"] is None
    assert "number of ranks differs" in check_markdown(HOSTILE_CHECK)
    assert "number of ranks differs" in check_text(HOSTILE_CHECK, width=200, color=False)
