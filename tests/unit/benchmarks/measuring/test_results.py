"""Results of benchmarks as a table and as JSON, and the comparison of two."""

from __future__ import annotations

import json

import pytest

from benchmarks.compare import changes, table
from benchmarks.measuring.results import Row, markdown, number, read_json, write_json

RATIO = Row(benchmark="one more rank", what="HTA / tracekit", unit="x", values=(61.0, 58.0, 64.0), target=">= 50x")
MISSING = Row(benchmark="limits", what="native decoder", unit="MB/CPU s", reason="not built here")


def cost(*values: float, what: str = "cold") -> Row:
    return Row(benchmark="whole run", what=what, unit="CPU s", values=values)


def test_a_table_has_median_range_and_number_of_runs():
    rows = markdown([RATIO, cost(0.5)]).splitlines()[2:]
    assert rows == [
        "| one more rank | HTA / tracekit | 61.0x | 58.0 - 64.0 | 3 | >= 50x |",
        "| whole run | cold | 0.500 CPU s |  | 1 |  |",
    ]


def test_a_table_says_why_a_figure_is_missing():
    missing, lost = markdown([MISSING, cost()]).splitlines()[2:]
    assert missing == "| limits | native decoder | n/a | not built here |  |  |"
    assert "not measurable here" in lost


@pytest.mark.parametrize(("value", "text"), [(1234.5, "1234"), (61.24, "61.2"), (2.345, "2.35"), (0.0534, "0.053")])
def test_figures_have_three_digits(value, text):
    assert number(value) == text


def test_json_round_trip(tmp_path):
    path = tmp_path / "deep" / "bench.json"
    write_json(path, [RATIO, MISSING], {"commit": "abc"})
    assert read_json(path) == ([RATIO, MISSING], {"commit": "abc"})
    assert json.loads(path.read_text())["rows"][0]["spread"] == {"median": 61.0, "low": 58.0, "high": 64.0, "count": 3}


def test_json_of_another_format_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"format": 0}')
    with pytest.raises(ValueError, match="not results of benchmarks"):
        read_json(tmp_path / "other.json")


def test_a_change_is_the_ratio_of_the_medians():
    ((change,), alone) = changes([cost(8.0, 8.2, 7.8)], [cost(4.0, 4.2, 3.9)])
    assert change.ratio == 0.5
    assert not change.doubt
    assert not alone


def test_no_change_is_claimed_where_the_runs_overlap():
    ((change,), _) = changes([cost(8.0, 8.2, 7.0)], [cost(7.5, 7.2, 7.6)])
    assert change.doubt == "ranges overlap"
    assert table([change]).endswith("| 8.00 CPU s | 7.50 CPU s | 0.938x | ranges overlap |")


def test_no_change_is_claimed_with_too_few_runs():
    ((change,), _) = changes([cost(8.0)], [cost(4.0, 4.1, 4.2)])
    assert change.doubt == "too few runs"


def test_what_only_one_commit_measured_is_listed():
    found, alone = changes([cost(1.0), MISSING], [cost(2.0, what="cached")])
    assert found == []
    assert alone == ["only before: whole run, cold", "only after: whole run, cached"]
