"""The gallery in `reports/`: text and JSON of one run have one number for one thing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tracekit.render.answer import LINES

REPORTS = Path(__file__).parents[3] / "reports"
RUNS = sorted(path.parent.name for path in REPORTS.glob("*/summary.json"))


def summary(run: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((REPORTS / run / "summary.json").read_text())
    return result


def test_there_are_reports() -> None:
    assert len(RUNS) >= 9


@pytest.mark.parametrize("run", RUNS)
def test_the_savings_of_the_text_are_those_of_the_replays(run: str) -> None:
    result, text = summary(run), (REPORTS / run / "terminal.txt").read_text()
    assert len(text.splitlines()) <= LINES
    printed = re.findall(r"saves ([\d.]+)(?: ± [\d.]+)? ms", " ".join(text.split()))
    stated = [finding for finding in result["findings"] if finding["saving_ns"]]
    assert printed == [f"{finding['saving_ns'] / 1e6:.1f}" for finding in stated][: len(printed)]
    assert printed != []
    replayed = {change["what"]: change["saves_ns_per_step"] for change in result["whatif"]["fix"]}
    for finding in stated:
        assert finding["saving_ns"] <= result["whatif"]["measured_step_ns"]
        if "change" in finding["evidence"]:
            assert finding["saving_ns"] == replayed[finding["evidence"]["change"]]


@pytest.mark.parametrize("run", RUNS)
def test_the_causes_sum_to_the_step(run: str) -> None:
    diagnosis = summary(run)["diagnosis"]
    assert sum(cause["time_ns"] for cause in diagnosis["causes"]) == diagnosis["step_ns"]
