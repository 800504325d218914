"""HTA's tables as text, JSON and CSV."""

from __future__ import annotations

import json

import pandas as pd

from tracekit.hta.analyses import HtaResult
from tracekit.hta.command import hta_csv, hta_json, hta_text

FRAME = pd.DataFrame({"name": ["k" * 40, "=1"], "us": [1.23456789, float("nan")], "count": [3, 4]})
TABLE = HtaResult(tables={"kernels": FRAME})


def text(**results: HtaResult) -> list[str]:
    return hta_text(results, width=100, color=False).splitlines()


def test_text_has_short_names_and_six_digits() -> None:
    title, _, head, _, first, second, _, count = text(breakdown=TABLE)
    assert (title, head.split(), count) == ("breakdown: kernels", ["name", "us", "count"], "2 rows")
    assert first.split() == [f"{'k' * 31}…", "1.23457", "3"]
    assert second.split() == ["=1", "NULL", "4"]


def test_text_of_a_long_table_says_how_many_rows_are_left() -> None:
    lines = text(launches=HtaResult(tables={"launches": pd.DataFrame({"a": range(1234)})}))
    assert lines[-1] == "1,234 rows (the first 20 are shown; -o FILE.csv or FILE.json has all)"
    assert len(lines) == 26


def test_errors_and_missing_results_are_said() -> None:
    lines = text(
        path=HtaResult(error="ValueError: no\x1b"),
        counters=HtaResult(remarks=("not recorded",)),
        other=HtaResult(),
    )
    assert [line for line in lines if line] == [
        r"path: HTA fails with ValueError: no\x1b",
        "counters: HTA has no result (not recorded)",
        "other: HTA has no result (no reason given)",
    ]


def test_json_has_all_digits_and_null() -> None:
    document = json.loads(hta_json({"breakdown": TABLE, "path": HtaResult(error="ValueError: no")}, path="runs"))
    assert document["path"] == "runs"
    assert document["analyses"]["breakdown"]["tables"]["kernels"] == [
        {"name": "k" * 40, "us": 1.23456789, "count": 3},
        {"name": "=1", "us": None, "count": 4},
    ]
    assert document["analyses"]["path"]["error"] == "ValueError: no"


def test_csv_is_safe_for_spreadsheets() -> None:
    assert hta_csv(FRAME).splitlines() == ["name,us,count", f"{'k' * 40},1.23456789,3", "'=1,,4"]
