"""The screen of an operation table, and its JSON."""

from __future__ import annotations

import json

import pandas as pd

from tests.unit.optables.simulated import diagnose, simulate
from tracekit.optables.screen import table_answer, table_details, table_dict
from tracekit.render.answer import LINES
from tracekit.render.console import write

STALLS = {(2, 2, "F", 4): 60_000_000, (4, 4, "B", 2): 80_000_000, (5, 1, "B", 6): 50_000_000}


def screen(table: pd.DataFrame, width: int = 80) -> str:
    return write(table_answer(diagnose(table), width), width=width, color=False)


def test_the_answer_fits_a_screen_and_names_what_was_planted() -> None:
    text = screen(simulate(replicas=3, longer_ns=STALLS, slow_ranks={9: 1.4}, slow_stages={3: 1.2}))
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("ops.csv: a table of operations; 12 ranks · 4 stages x 3 replicas")
    assert "rank 9 computes 96.0 ms a step (40%) longer than its peers" in text
    assert "Stalls: each time another rank: 3 operations on 3 ranks, in 3 of 6 steps" in text
    assert "step 4, rank 4, backward 2 of stage 0: 99.9" in text
    assert "Critical path: work" in text


def test_the_details_have_every_table() -> None:
    text = write(table_details(diagnose(simulate(replicas=2, longer_ns=STALLS)), 80), width=80, color=False)
    for title in ("Pipeline (1f1b, 8 microbatches)", "Bubbles ", "Outliers (ms)", "Critical path by step", "What if"):
        assert title in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_json_has_what_the_screen_says() -> None:
    found = table_dict(diagnose(simulate(replicas=2, longer_ns=STALLS)))
    found = json.loads(json.dumps(found, allow_nan=False))
    assert found["operation_table"] == {
        "source": "a table of operations",
        "ranks": 8,
        "replicas": 2,
    }
    assert found["stalls"]["pattern"] == "wandering"
    assert [row["step"] for row in found["outliers"]] == [4, 2, 5]
    assert {row["step"] for row in found["critical_path_by_step"]} == set(range(6))
    assert found["pipeline"]["schedule"] == "1f1b"
    assert {finding["cause"] for finding in found["findings"]} >= {"stall", "bubble"}
