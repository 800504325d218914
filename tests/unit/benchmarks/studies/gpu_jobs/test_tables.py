"""Tables count what is right, and stand in the documentation between their marks."""

from __future__ import annotations

import pytest

from benchmarks.studies.documents import markdown
from benchmarks.studies.gpu_jobs import docs
from benchmarks.studies.gpu_jobs.cases import GROUPS, SCORING_SEEDS, TUNING_SEEDS, Case, cases
from benchmarks.studies.gpu_jobs.checks import TOPICS, TOPICS_OF_LOSSES
from benchmarks.studies.gpu_jobs.scoring import Score
from benchmarks.studies.gpu_jobs.tables import table_by_check, table_by_defect, table_by_group


def outcome(check, verdict, *, group="ddp", seed=1, cause="compute"):
    return Score(group, seed, cause, "topic", check, verdict, "", "")


SCORES = [
    outcome("no_false_alarm", "right", seed=0, cause=None),
    outcome("no_false_alarm", "wrong", seed=2, cause=None),
    outcome("culprit", "right"),
    outcome("cause", "wrong"),
    outcome("saving_of_whatif", "abstained"),
    outcome("culprit", "right", group="hybrid"),
]


def test_a_group_has_the_share_of_right_checks_and_false_alarms_and_named_culprits():
    _, ddp, _, everything = table_by_group(SCORES)

    assert ddp == ("ddp", "3", "5", "2 (40.0%)", "2", "1", "1 of 2", "1 of 1", "0 of 1", "0 of 1")
    assert everything[:4] == ("all", "4", "6", "3 (50.0%)")


def test_checks_are_counted_by_group():
    heading, *rows = table_by_check(SCORES)

    assert heading == ("topic", "check", "ddp", "hybrid")
    assert ("topic", "no false alarm", "1 of 2", "") in rows
    assert ("topic", "culprit", "1 of 1", "1 of 1") in rows


def test_defects_are_counted_over_groups():
    assert table_by_defect(SCORES)[1] == ("compute", "2", "2 of 2", "0 of 1", "", "0 of 1")


def test_a_table_has_columns_of_equal_width():
    assert markdown([("a", "bb"), ("ccc", "d")]) == "| a   | bb |\n|-----|----|\n| ccc | d  |"


def test_tables_of_the_documentation_are_replaced_and_its_prose_is_kept():
    names = ("groups", "defects", "checks", "seeds")
    text = "Prose.\n" + "".join(f"<!-- {name} -->\nold\n<!-- /{name} -->\nMore.\n" for name in names)

    written = docs.with_tables(text, SCORES, "scoring", SCORING_SEEDS[:3])

    assert "old" not in written
    assert written.count("Prose.") == 1
    assert written.count("More.") == 4
    assert markdown(table_by_group(SCORES)) in written
    assert docs.with_tables(written, SCORES, "scoring", SCORING_SEEDS[:3]) == written


def test_documentation_without_a_place_for_a_table_is_an_error():
    with pytest.raises(ValueError, match="groups"):
        docs.with_tables("", SCORES, "scoring", SCORING_SEEDS[:3])


def test_the_documentation_has_a_place_for_each_table():
    docs.with_tables(docs.FILE.read_text(), SCORES, "scoring", SCORING_SEEDS[:3])


def test_no_seed_is_for_tuning_and_for_the_score():
    assert not set(TUNING_SEEDS) & set(SCORING_SEEDS)
    assert {case.seed for case in cases("scoring", list(GROUPS), 100)} <= set(SCORING_SEEDS)


def test_half_of_the_jobs_are_healthy_and_each_defect_of_a_family_has_its_turn():
    causes = [case.cause for case in cases("scoring", ["hybrid"], 28)]

    assert causes.count(None) == 14
    assert {causes.count(cause) for cause in set(causes) - {None}} == {2}


def test_one_job_in_ten_is_read_from_files():
    chosen = [case for case in cases("scoring", ["ddp"], 40) if case.in_files]

    assert len(chosen) == 4
    assert {case.cause is None for case in chosen} == {True, False}


def test_each_check_says_what_it_compares():
    checks = [check for topics in (TOPICS, TOPICS_OF_LOSSES) for checks in topics.values() for check in checks]

    assert [check for check in checks if not check.__doc__] == []
    assert len({check.__name__ for check in checks}) == len(checks)


def test_groups_differ_in_what_they_say_that_they_do():
    assert Case("pipeline-action", 3).spec().labels == "action"
    assert Case("pipeline-messages", 3).spec().labels == "none"
    assert Case("expert-kernels", 3).spec().dispatch == "kernels"
    assert Case("lost-receives", 3).spec().missing.receives > 0
