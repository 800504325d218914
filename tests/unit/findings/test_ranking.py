"""Findings are ranked by what they save, and none says what another has said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tracekit.findings.claims import coverage
from tracekit.findings.finding import Finding, Remedy
from tracekit.findings.pipeline import pipeline_bubble
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
        action="mend it",
        evidence={} if others_wait_ns is None else {"others_wait_ns": others_wait_ns},
    )


def test_errors_come_first_then_savings_then_times() -> None:
    wrong = finding("wrong", severity="error")
    saves_most = finding("saves most", severity="info", saving_ns=9)
    saves_less = finding("saves less", saving_ns=5, time_ns=100)
    takes_long = finding("takes long", time_ns=100)
    takes_less = finding("takes less", time_ns=10)
    is_known = finding("is known", severity="info", time_ns=10)

    given = [is_known, takes_less, takes_long, saves_less, saves_most, wrong]
    assert rank_findings(given, STEP_NS) == [wrong, takes_long, saves_most, saves_less, takes_less, is_known]


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


def test_an_upper_bound_comes_after_what_savings_are_known_of() -> None:
    bound = replace(finding("transfers take long", remedy="network", time_ns=16), evidence={"bound_ns": 12})
    buckets = finding("they are not in buckets", cause="transfer", saving_ns=7)
    other = finding("something else", saving_ns=5)

    assert rank_findings([bound, buckets, other], STEP_NS) == [buckets, other, bound]


CAUSES = [
    {"cause": "slow_host", "ranks": [3], "time_ns": 300},
    {"cause": "host_bound", "ranks": [], "time_ns": 100},
    {"cause": "transfer", "ranks": [], "time_ns": 200},
    {"cause": "variation", "ranks": [], "time_ns": 60},
    {"cause": "compute", "ranks": [], "time_ns": 340},
]


def test_two_findings_claim_no_time_twice() -> None:
    """GIVEN a late rank that costs more than it is late AND a part of the transfers that has a finding of its own THEN
    times are rows of the diagnosis: what the rank costs is no time of all ranks.
    """
    late = finding("rank 3", rank=3, remedy="ranks", cause="host", saving_ns=350, time_ns=300)
    idle = finding("launches are late", remedy="host", cause="host_bound", saving_ns=80, time_ns=100)
    part = finding("small messages", cause="transfer", saving_ns=90, time_ns=90)
    rest = finding("transfers", remedy="communication", cause="transfer", time_ns=200)
    turns = finding("by turns", cause="variation", time_ns=60)

    ranked = rank_findings([turns, rest, part, idle, late], STEP_NS, CAUSES)

    assert [(each.text, each.time_ns, each.evidence.get("behind_ns")) for each in ranked] == [
        ("rank 3", 300, 50),
        ("small messages", 90, None),
        ("launches are late", 50, 30),
        ("transfers", 110, None),
    ]


def test_idle_time_of_a_rank_that_is_named_is_its_own_without_a_replay() -> None:
    """GIVEN a rank that idles for most of the idle time on a critical path that no longer passes it."""
    late = finding("rank 2 is late", rank=2, remedy="ranks", cause="host_bound", time_ns=200)
    launches = finding("the host launches late", remedy="host", cause="host_bound", time_ns=250)
    causes = [{"cause": "host_bound", "ranks": [], "time_ns": 250}]

    ranked = rank_findings([launches, late], STEP_NS, causes)

    assert [(each.text, each.time_ns) for each in ranked] == [
        ("rank 2 is late", 200),
        ("the host launches late", 50),
    ]


def test_a_rank_that_computes_longer_for_a_load_that_is_told_is_told_once() -> None:
    """GIVEN experts of a rank that receive most tokens, and no replay of that rank as its peers."""
    load = finding("experts of rank 1", rank=1, remedy="load", cause="expert_load", saving_ns=100, time_ns=150)
    late = finding("rank 1 computes longer", rank=1, remedy="ranks", cause="compute", time_ns=150)
    causes = [
        {"cause": "slow_compute", "ranks": [1], "time_ns": 150},
        {"cause": "compute", "ranks": [], "time_ns": 500},
    ]

    assert [each.text for each in rank_findings([load, late], STEP_NS, causes)] == ["experts of rank 1"]


def test_what_all_ranks_could_save_is_what_remains_without_the_rank_that_is_late() -> None:
    """GIVEN launches in time that save more than the late rank, since that contains it THEN the rank comes first, and
    of the launches what remains is stated.
    """
    late = finding("rank 3", rank=3, remedy="ranks", cause="host", saving_ns=350, time_ns=300)
    idle = finding("launches are late", remedy="host", cause="host_bound", saving_ns=420, time_ns=100)

    def after(stated: Finding, made: Sequence[Finding]) -> Finding:
        return replace(stated, saving_ns=70) if stated.text == idle.text and made else stated

    ranked = rank_findings([idle, late], STEP_NS, CAUSES, after)
    assert [(each.text, each.saving_ns) for each in ranked] == [("rank 3", 350), ("launches are late", 70)]


def test_bubbles_are_told_of_without_those_behind_the_stage_that_is_named() -> None:
    """GIVEN a quarter of the time in bubbles, of which a third is a slow stage's doing THEN a sixth is left; none if
    the order of actions needs as much.
    """
    bubbles = pipeline_bubble(
        severity="warning",
        cause="bubble",
        evidence={
            "bubble_ratio": 0.24,
            "named_ratio": 0,
            "ideal_bubble_ratio": 0.05,
            "schedule": None,
            "warmup_ns": 60,
            "drain_ns": 40,
            "imbalance_ns": 80,
            "late_peer_ns": 0,
            "transfer_ns": 60,
            "other_ns": 0,
        },
    )
    stage = finding("stage 1", rank=1, remedy="stages", cause="imbalance", saving_ns=70)
    causes = [{"cause": "warmup", "ranks": [], "time_ns": 100}, {"cause": "imbalance", "ranks": [], "time_ns": 70}]

    _, rest = rank_findings([bubbles, stage], STEP_NS, causes)
    shares = (rest.evidence["bubble_ratio"], rest.evidence["named_ratio"])
    assert (shares, rest.evidence["imbalance_ns"]) == ((pytest.approx(0.16), pytest.approx(0.08)), 0)
    as_many = replace(bubbles, evidence={**bubbles.evidence, "ideal_bubble_ratio": 0.2})
    assert [each.text for each in rank_findings([as_many, stage], STEP_NS, causes)] == ["stage 1"]
    assert rank_findings([as_many], STEP_NS, causes)[0].text == bubbles.text


def test_load_of_experts_explains_the_work_that_its_rank_has_more_of() -> None:
    """GIVEN a rank with more work, whose experts get more tokens THEN that time is not told again as unexplained."""
    causes = [
        {"cause": "slow_more_work", "ranks": [1], "time_ns": 460},
        {"cause": "compute", "ranks": [], "time_ns": 540},
    ]
    load = finding("experts of rank 1", rank=1, cause="expert_load", remedy="load", saving_ns=250, time_ns=460)
    assert coverage(STEP_NS, causes, [load]).unexplained_ns == {}
    assert coverage(STEP_NS, causes, []).unexplained_ns == {"slow_more_work": 460}


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
