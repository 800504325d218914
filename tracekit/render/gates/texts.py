"""What became of a gate, in words."""

from __future__ import annotations

from tracekit.analysis.gates.evaluation import Check, FindingResult, GateResult
from tracekit.analysis.gates.metrics import Unit
from tracekit.model.quantities import count_text, file_size, milliseconds
from tracekit.render.comparison.texts import change_range, signed_percent

__all__ = ["limit_text", "outcome_text", "result_text", "summary_text", "value_text"]


def value_text(value: float, unit: Unit) -> str:
    """Return `184.60 ms`, `12.3%` or `40 GB`."""
    if unit == "time":
        return f"{milliseconds(value)} ms"
    return file_size(value) if unit == "bytes" else f"{value:.1%}"


def limit_text(result: GateResult) -> str:
    """Return `at most +5%` or `at least 40.0%`."""
    gate = result.gate
    side = "at least" if gate.metric.worse == "lower" else "at most"
    if not gate.is_relative:
        return f"{side} {value_text(gate.limit, gate.metric.unit)}"
    sign = "+" if gate.kind == "max_increase" else "-"
    return f"{side} {sign}{gate.limit * 100:.3g}%"


def outcome_text(result: GateResult | FindingResult) -> str:
    """Return passed, failed, or the doubt with what it counts as."""
    if result.status == "failed" and result.allowed:
        return "failed, ignored"
    if result.status in {"passed", "failed"}:
        return result.status
    return f"{result.status}, {'allowed' if result.allowed else 'so failed'}"


def result_text(result: GateResult | FindingResult) -> str:
    """Return the value, the change and the limit in one sentence, with the reason where the gate is in doubt.

    Of a finding, what it says.
    """
    if isinstance(result, FindingResult):
        said = result.texts or (("the run has no such finding",) if result.status == "passed" else ())
        return "; ".join([*said, *([result.reason] if result.reason is not None else [])])
    unit = result.gate.metric.unit
    parts = [] if result.value is None else [value_text(result.value, unit)]
    if result.baseline is not None and result.change_share is not None:
        change = signed_percent(result.change_share)
        interval = "" if result.change is None else f", interval {change_range(result.change)}"
        parts.append(f"against {value_text(result.baseline, unit)}: {change}{interval}")
    measured = " ".join(parts)
    reason = "" if result.reason is None else result.reason
    if result.steps_needed is not None:
        reason += f"; about {result.steps_needed} steps in each run would decide"
    return "; ".join(part for part in (measured, f"limit {limit_text(result)}", reason) if part)


def summary_text(check: Check) -> str:
    """Return how many gates pass, in one line."""
    passing = sum(result.passes for result in check.all_results)
    count = len(check.all_results)
    passes = "passes" if count == 1 else "pass"
    outcome = "passed" if check.passes else "failed"
    return f"{outcome}: {passing} of {count_text(count, 'gate')} {passes} ({check.gates.source})"
