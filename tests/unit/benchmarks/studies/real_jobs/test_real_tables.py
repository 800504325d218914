"""The table counts what is right by kind, and stands in the documentation between its marks."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.studies.documents import between_marks
from benchmarks.studies.real_jobs.scoring import Score
from benchmarks.studies.real_jobs.tables import FILE, summary, table

MS = 1_000_000
RIGHT = Score(
    kind="host",
    seed=0,
    named=True,
    right_cause=True,
    certainty="sure",
    step_ns=100 * MS,
    measured_ns=20 * MS,
    planted_ns=25 * MS,
    predicted_ns=21 * MS,
    error_ns=MS,
    false_alarm=None,
    text="",
)
SCORES = [
    RIGHT,
    replace(RIGHT, certainty="likely", right_cause=False, predicted_ns=30 * MS, measured_ns=40 * MS),
    replace(RIGHT, kind="data", planted_ns=None, named=False, certainty="sure", false_alarm="likely"),
]


def test_a_kind_has_its_counts_and_the_median_error():
    _, host, data, everything = table(SCORES)

    assert host == ("host", "2", "2", "1", "1", "1", "20 to 40", "15.0%", "1", "0")
    assert data == ("data", "1", "0", "1", "0", "0", "20 to 20", "5.0%", "1", "1")
    assert everything[:6] == ("all", "3", "2", "2", "1", "1")


def test_rates_have_the_interval_of_wilson():
    assert "culprit right: 2 of 3 (66.7%; 20.8% to 93.9%)" in summary(SCORES)


def test_planted_delays_judge_predictions_and_measurements():
    """GIVEN 25 ms planted, twice: 21 and 30 ms predicted, 20 and 40 ms measured; and something else without a delay."""
    text = summary([*SCORES, replace(RIGHT, predicted_ns=24 * MS)])

    assert "savings close to the planted delay, where it is one: 1 of 3" in text
    assert "measurements as close to it: 0 of 3" in text


def test_the_documentation_has_places_for_the_tables():
    text = between_marks(FILE.read_text(), {"kinds": "KINDS", "rates": "RATES"})

    assert "KINDS" in text
    assert "RATES" in text
