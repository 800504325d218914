"""What is said of a planted defect is compared with who has it, why, and what removing it saved."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.studies.real_jobs.pairs import KINDS, pairs
from benchmarks.studies.real_jobs.scoring import score

MS = 1_000_000
COMPUTE, DATA_ON_ALL = "compute on one rank", "data on all ranks"


def finding(cause="compute", ranks=(1,), saving_ms: float | None = 20, certainty="sure"):
    saving = {"saving_ns": None if saving_ms is None else int(saving_ms * MS), "saving_error_ns": MS}
    return {"cause": cause, "ranks": list(ranks), "certainty": certainty, "text": "a finding", **saving}


def result(*findings, step_ms=100):
    return {"findings": list(findings), "run": {"step_ns": {"median": step_ms * MS}}}


def pair_of(kind, culprits):
    (pair,) = pairs([kind], range(1))
    return replace(pair, culprits=culprits)


def scored(*findings, kind=COMPUTE, culprits=(1,), without=(), step_ms=100, without_ms=80):
    pair = pair_of(kind, culprits)
    return score(pair, result(*findings, step_ms=step_ms), result(*without, step_ms=without_ms))


def test_the_culprit_the_cause_and_the_saving_are_right():
    right = scored(finding(saving_ms=21))

    assert (right.named, right.right_cause, right.certainty, right.false_alarm) == (True, True, "sure", None)
    assert right.measured_ns == 20 * MS
    assert right.relative_error == pytest.approx(0.05)
    assert right.is_close


def test_a_delay_of_one_rank_is_known_as_it_is_planted():
    """GIVEN a delay of 25 ms, of which two runs show 20 THEN a prediction of 25 is close to what was planted alone."""
    pair = replace(pair_of(COMPUTE, (1,)), planted=("--delay-ms", "25"))
    right = score(pair, result(finding(saving_ms=25)), result(step_ms=80))

    assert (right.planted_ns, right.is_close_to_planted, right.is_measured_well) == (25 * MS, True, False)
    assert not right.is_close
    assert scored(finding(cause="data"), kind=DATA_ON_ALL, culprits=()).planted_ns is None


def test_the_first_who_is_blamed_counts():
    score = scored(finding(ranks=(0,)), finding(saving_ms=20))

    assert not score.named
    assert score.is_close  # the saving of the finding that is right


def test_findings_that_blame_nobody_do_not_count():
    score = scored(finding(cause="transfer", ranks=()), finding(cause="host_bound", ranks=(0,)), finding())

    assert score.named


def test_nobody_is_blamed():
    score = scored()

    assert (score.named, score.right_cause, score.certainty, score.predicted_ns) == (False, False, None, None)
    assert score.relative_error == 1
    assert not score.is_close


def test_another_cause_is_wrong():
    score = scored(finding(cause="host"))

    assert (score.named, score.right_cause) == (True, False)


def test_more_ranks_than_the_culprit_are_wrong():
    assert not scored(finding(ranks=(0, 1))).named


def test_a_finding_without_a_saving_is_off_by_all_of_it():
    assert scored(finding(saving_ms=None)).relative_error == 1


@pytest.mark.parametrize(("predicted_ms", "is_close"), [(17, True), (16.9, False), (23, True), (23.1, False)])
def test_savings_may_be_off_by_fifteen_percent(predicted_ms, is_close):
    assert scored(finding(saving_ms=predicted_ms)).is_close is is_close


@pytest.mark.parametrize(("predicted_ms", "is_close"), [(3, True), (3.1, False)])
def test_small_savings_may_be_off_by_a_hundredth_of_the_step(predicted_ms, is_close):
    assert scored(finding(saving_ms=predicted_ms), without_ms=98).is_close is is_close


def test_where_all_ranks_have_the_defect_its_cause_tells():
    everybody = scored(finding(cause="data", ranks=(3,)), kind=DATA_ON_ALL, culprits=())
    somebody = scored(finding(cause="compute", ranks=(3,)), kind=DATA_ON_ALL, culprits=())

    assert everybody.named
    assert not somebody.named


def test_whoever_is_blamed_without_the_defect_is_a_false_alarm():
    alarms = (finding(certainty="likely"), finding(cause="host", certainty="sure"))

    assert scored(finding(), without=alarms[:1]).false_alarm == "likely"
    assert scored(finding(), without=alarms).false_alarm == "sure"
    assert scored(finding(), without=[finding(cause="variation", ranks=())]).false_alarm is None


def test_a_seed_always_draws_the_same_pair():
    assert pairs(list(KINDS), range(3)) == pairs(list(KINDS), range(3))


@pytest.mark.parametrize("kind", KINDS)
def test_the_culprits_are_among_two_to_four_ranks_and_vary(kind):
    drawn = [KINDS[kind](kind, seed, random.Random(seed)) for seed in range(20)]

    assert all(set(pair.culprits) < set(range(pair.ranks)) for pair in drawn)
    assert {pair.ranks for pair in drawn} <= {2, 3, 4}
    assert len({(pair.ranks, pair.culprits, pair.planted, pair.options) for pair in drawn}) > 3
