"""The answer for programs that read little: numbers for trackers of experiments, and JSON for agents."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.places import DATA
from tracekit.api import analyze
from tracekit.findings.finding import Finding
from tracekit.render.json_result import brief_json, result_dict


@pytest.mark.parametrize("name", ["ddp_slow_rank", "h100_context"])
def test_metrics_are_the_numbers_of_the_result(name: str) -> None:
    report = analyze(str(DATA / name))
    result, metrics = result_dict(report), report.metrics()
    assert metrics["step_ms"] == result["run"]["step_ns"]["median"] / 1e6
    assert sum(metrics[f"{part}_ratio"] for part in ("compute", "exposed_comm", "exposed_copy", "idle")) == (
        pytest.approx(1)
    )
    savings = {row["id"].replace("-", "_"): row["saving_ns"] for row in reversed(result["findings"])}
    for finding, saving_ns in savings.items():
        assert metrics.get(f"{finding}_saving_ms") == (None if saving_ns is None else saving_ns / 1e6)


def test_the_brief_result_has_the_findings_first_and_is_short() -> None:
    report = analyze(str(DATA / "ddp_slow_rank"))
    brief, result = json.loads(brief_json(report)), result_dict(report)
    assert next(iter(brief)) == "findings"
    for shown, finding in zip(brief["findings"], result["findings"], strict=True):
        assert {name: shown[name] for name in ("id", "text", "action", "saving_ns")} == {
            name: finding[name] for name in ("id", "text", "action", "saving_ns")
        }
    assert (brief["run"]["ranks"], brief["step_ns"]) == (2, result["run"]["step_ns"])
    assert all(command.startswith("tracekit ") for command in brief["next"])
    many = Finding(id="straggler", severity="warning", text="a long claim " * 20, ranks=tuple(range(0, 900, 2)))
    text = brief_json(replace(report, findings=(many,) * 12))
    assert len(text.encode()) < 3_000
    assert json.loads(text)["more_findings"] == 12 - len(json.loads(text)["findings"]) > 0
    assert json.loads(brief_json(replace(report, findings=())))["findings"] == []
