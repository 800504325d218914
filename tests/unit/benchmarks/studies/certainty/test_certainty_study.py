"""The study of grades: cases are apart and repeatable, what is planted is there, and rates are counted right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.studies.certainty import docs
from benchmarks.studies.certainty.cases import SCORING_SEEDS, TUNING_SEEDS, WHERE, Case, cases
from benchmarks.studies.certainty.programs import run_of
from benchmarks.studies.certainty.scoring import Score, score
from benchmarks.studies.rates import rate, wilson


def test_seeds_for_tuning_and_for_the_score_are_apart():
    assert not set(TUNING_SEEDS) & set(SCORING_SEEDS)


def test_equal_seeds_give_equal_cases_of_all_kinds():
    chosen = [case for where in WHERE for case in cases(range(40), 1.0, where=where)]

    assert chosen == [case for where in WHERE for case in cases(range(40), 1.0, where=where)]
    assert {case.strategy for case in chosen} == {"ddp", "fsdp", "tensor", "pipeline"}
    assert {case.planted for case in chosen} == {"compute", "more_work", "host", "data", "between"}
    assert all(0.15 <= case.delay <= 0.5 and 3 <= case.steps <= 6 for case in chosen)
    assert all(len(case.slow) <= case.ranks / 2 for case in chosen)


@pytest.mark.parametrize("planted", ["compute", "more_work", "host", "data", "between"])
def test_the_planted_delay_is_in_the_step(planted):
    case = Case(seed=0, strategy="ddp", ranks=4, steps=4, noise=0.0, planted=planted, slow=(2,), delay=0.25)
    steps = run_of(case).ranks[2].steps
    plain = run_of(replace(case, planted=None, slow=(), delay=0.0)).ranks[2].steps

    longer_ns = np.array([step.step_ns - step.exposed_comm_ns for step in steps])
    longer_ns -= np.array([step.step_ns - step.exposed_comm_ns for step in plain])
    assert longer_ns == pytest.approx([25e6] * 4, rel=1e-6)


def test_missing_ranks_leave_no_trace():
    run = run_of(Case(seed=0, strategy="tensor", ranks=8, steps=3, noise=1.0, missing=(5,)))

    assert [summary.rank for summary in run.ranks] == [0, 1, 2, 3, 4, 6, 7]
    assert run.missing_ranks == (5,)
    assert all(5 not in matched.ranks for matched in run.collectives)


def test_a_plain_case_is_scored():
    case = Case(seed=0, strategy="fsdp", ranks=4, steps=4, noise=0.5, planted="host", slow=(1,), delay=0.4)

    scored = score(case)
    assert (scored.named, scored.right, scored.right_cause, scored.wrong) == ((1,), True, True, False)
    assert replace(scored, case=replace(case, slow=(2,))).wrong
    assert not replace(scored, is_link=True).right


def test_wilsons_interval():
    """Source: Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion" (2001), and by hand."""
    assert wilson(0, 400) == pytest.approx((0.0, 0.009512), abs=1e-5)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert rate([True, False, False, False]) == "1 of 4 (25.0%; 4.6% to 69.9%)"


def test_tables_stand_in_the_documentation_between_their_marks():
    clean = Case(seed=0, strategy="ddp", ranks=4, steps=4, noise=1.0)
    planted = replace(clean, planted="host", slow=(1,), delay=0.2)
    named = Score(case=planted, named=(1,), is_link=False, cause="host", certainty="sure", text="")
    nothing = Score(case=clean, named=(), is_link=False, cause=None, certainty=None, text="")

    document = docs.with_tables(docs.FILE.read_text(), {"clean": [nothing], "one rank": [named]}, range(3))
    text = " ".join(document.split())  # columns are of equal width
    assert "| clean | 0 of 1 (0.0%; 0.0% to 79.3%) |" in text
    assert "| one rank | 1 of 1 (100.0%; 20.7% to 100.0%) | 1 |" in text
    assert "Seeds 0 to 2." in text
    with pytest.raises(ValueError, match="no place"):
        docs.with_tables("", {"clean": [nothing]}, range(3))
