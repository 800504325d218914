"""Numbers of a report are compared with true ones: what is off, missing or too much is wrong."""

from __future__ import annotations

import pytest

from benchmarks.studies.gpu_jobs.outcome import compare, compare_each


@pytest.mark.parametrize(
    ("seen", "verdict"), [(109.0, "right"), (91.0, "right"), (111.0, "wrong"), (89.0, "wrong"), (None, "abstained")]
)
def test_a_number_may_be_off_by_a_share_of_the_true_one(seen, verdict):
    assert compare(seen, 100.0, within=1.0, share=0.1).verdict == verdict


def test_the_allowance_is_the_larger_one_of_a_share_and_a_fixed_one():
    assert compare(14.0, 10.0, within=5.0, share=0.1).verdict == "right"
    assert compare(16.0, 10.0, within=5.0, share=0.1).verdict == "wrong"


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ({1: 10.0, 2: 20.0}, "right"),
        ({1: 10.0, 2: 23.0}, "wrong"),
        ({1: 10.0}, "wrong"),
        ({1: 10.0, 2: None}, "wrong"),
        ({1: 10.0, 2: 20.0, 3: 0.0}, "wrong"),
        ({1: None, 2: None}, "abstained"),
    ],
)
def test_each_expected_number_must_be_there_and_no_other(seen, verdict):
    assert compare_each(seen, {1: 10.0, 2: 20.0}, within=2.0).verdict == verdict


def test_the_outcome_shows_the_number_that_is_farthest_off():
    outcome = compare_each({"a": 11.0, "b": 90.0}, {"a": 10.0, "b": 20.0}, within=0.5)

    assert (outcome.seen, outcome.expected) == ("b: 90 (2 of 2 are off)", "b: 20 ± 0.5")


def test_a_few_of_many_may_be_off_where_that_is_allowed():
    expected = dict.fromkeys(range(100), 1.0)

    assert compare_each(expected | {0: 9.0, 1: 9.0}, expected, within=0.1, enough=0.98).verdict == "right"
    assert compare_each(expected | {0: 9.0, 1: 9.0, 2: 9.0}, expected, within=0.1, enough=0.98).verdict == "wrong"
