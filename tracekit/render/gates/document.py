"""The results of gates as JSON."""

from __future__ import annotations

from typing import Any

import tracekit
from tracekit.analysis.gates.evaluation import Check, GateResult
from tracekit.analysis.gates.metrics import Unit
from tracekit.model.safe_text import unicode_text
from tracekit.render.comparison.document import comparison_dict, json_text
from tracekit.render.json_result import SCHEMA_VERSION

__all__ = ["check_json"]


def check_json(check: Check) -> str:
    """Return the results as a JSON document with sorted keys; `comparison` is null without a comparable baseline."""
    return json_text(
        {
            "schema_version": SCHEMA_VERSION,
            "tracekit_version": tracekit.__version__,
            "passed": check.passes,
            "run": {"path": unicode_text(check.run.path), "run_id": check.run.run_id, "attempt": check.run.attempt},
            "gates_from": check.gates.source,
            "allowed": sorted(check.gates.allow),
            "gates": [_gate(result) for result in check.results],
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
