"""Findings are ranked by what they save, and none says what another has said."""

from __future__ import annotations

from tracekit.findings.finding import Finding, Remedy
from tracekit.findings.ranking import rank_findings, with_noise
from tracekit.model.notes import Severity

STEP_NS = 1000


def finding(
    text: str = "it is slow",
    *,
    severity: Severity = "warning",
    remedy: Remedy | None = None,
    rank: int | None = None,
    saving_ns: int | None = None,
    time_ns: int | None = None,
    cause: str | None = None,
    others_wait_ns: int | None = None,
) -> Finding:
    return Finding(
        id="straggler",
        severity=severity,
        text=text,
        remedy=remedy,
        rank=rank,
        saving_ns=saving_ns,
        time_ns=time_ns,
        cause=cause,
        evidence={} if others_wait_ns is None else {"others_wait_ns": others_wait_ns},
    )


def test_errors_come_first_then_savings_then_times() -> None:
    wrong = finding("wrong", severity="error")
    saves_most = finding("saves most", severity="info", saving_ns=9)
    saves_less = finding("saves less", saving_ns=5, time_ns=100)
    takes_long = finding("takes long", time_ns=100)
    takes_less = finding("takes less", time_ns=10)
    is_known = finding("is known", severity="info", time_ns=50)

    given = [is_known, takes_less, takes_long, saves_less, saves_most, wrong]
    assert rank_findings(given, STEP_NS) == [wrong, saves_most, saves_less, takes_long, takes_less, is_known]


def test_a_blamed_rank_is_not_told_of_twice() -> None:
    """GIVEN a rank that is blamed for loading data THEN that steps wait for data on it says nothing new."""
    blamed = finding("rank 2 loads longer", rank=2, cause="data", remedy="ranks")
    general = finding("steps wait, most on rank 2", rank=2, cause="data", remedy="data", saving_ns=3)
    elsewhere = finding("steps wait, most on rank 3", rank=3, cause="data", remedy="data")

    assert rank_findings([general, blamed, elsewhere], STEP_NS) == [blamed, elsewhere]


def test_a_rank_that_is_late_from_before_the_recording_comes_first_if_others_wait_long_for_it() -> None:
    general = finding("launches are late", saving_ns=600)
    late = finding("others wait", rank=7, others_wait_ns=300)
    little = finding("others hardly wait", rank=7, others_wait_ns=100)
    known = finding("others wait, as a replay knows", rank=7, others_wait_ns=300, saving_ns=250)

    assert rank_findings([general, late], STEP_NS) == [late, general]
    assert rank_findings([little, general], STEP_NS) == [general, little]
    assert rank_findings([known, general], STEP_NS) == [general, known]


def test_what_to_do_about_transfers_comes_before_the_bound_of_what_that_can_save() -> None:
    bound = finding("transfers take long", remedy="network", cause="transfer", saving_ns=9)
    buckets = finding("they are not in buckets", cause="transfer", saving_ns=5)
    other = finding("something else", saving_ns=7)

    assert rank_findings([bound, buckets, other], STEP_NS) == [other, buckets, bound]
    assert rank_findings([bound, finding("no replay", cause="transfer"), other], STEP_NS)[0] == bound


def test_noise_comes_before_what_it_makes_uncertain_and_behind_ranks_that_are_clearly_slow() -> None:
    noise, waits = (
        Finding(id="straggler", severity="warning", text="noisy"),
        Finding(id="straggler", severity="warning", text="waits", time_ns=50),
    )
    slow = Finding(id="straggler", severity="warning", text="slow", time_ns=20, evidence={"peers_steps_per_s": 40.0})

    assert [finding.text for finding in with_noise([noise], rank_findings([slow, waits], 100))] == [
        "slow",
        "noisy",
        "waits",
    ]
