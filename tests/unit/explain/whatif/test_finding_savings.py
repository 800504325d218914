"""A finding states the saving of the change that it advises, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.phases import StepPhases
from tracekit.explain.whatif.changes import Change
from tracekit.explain.whatif.whatif import WhatIf, state_saving, with_replay_error, with_stated_savings
from tracekit.findings.finding import Finding, Remedy


def finding(remedy: Remedy | None, *, rank: int | None = None, ranks: tuple[int, ...] = ()) -> Finding:
    return Finding(
        id="straggler",
        severity="warning",
        text="it is slow",
        rank=rank,
        saving_ns=4_000_000,
        remedy=remedy,
        ranks=ranks,
    )


def change(remedy: Remedy, *ranks: int, what: str = "a remedy") -> Change:
    rank = ranks[0] if len(ranks) == 1 else None
    return Change(
        what=what, remedy=remedy, saves_ns_per_step=2_600_000, error_ns=50_000, share=0.26, rank=rank, ranks=ranks
    )


def whatif(*changes: Change) -> WhatIf:
    return WhatIf(
        steps=5,
        measured_ns=10_000_000,
        replayed_ns=10_000_000,
        ideal_ns=9_000_000,
        slowdown=1.1,
        replay_error=0.0,
        by_rank={},
        by_type={},
        by_stage={},
        slowest_ranks_share=None,
        last_stage_share=None,
        changes=changes,
        notes=(),
    )


@pytest.mark.parametrize(
    ("of_finding", "replayed"),
    [
        (finding("ranks", rank=5), change("ranks", 5)),
        (finding("ranks", ranks=(4, 5)), change("ranks", 5, 4)),
        (finding("link", ranks=(2, 0)), change("link", 0, 2)),
        (finding("data", rank=2), change("data", 2)),
        (finding("data", rank=2), change("data")),
        (finding("load", rank=0), change("load", 0)),
        (finding("load", rank=0), change("ranks", 0)),
        (finding("stages", rank=1), change("stages")),
        (finding("communication"), change("communication")),
    ],
)
def test_a_finding_has_the_saving_of_what_it_advises(of_finding: Finding, replayed: Change) -> None:
    stated = state_saving(of_finding, whatif(change("ranks", 9), replayed))

    assert (stated.saving_ns, stated.saving_error_ns, stated.evidence) == (2_600_000, 50_000, {"change": "a remedy"})
    assert stated.text == "it is slow"


@pytest.mark.parametrize(
    ("of_finding", "replayed"),
    [
        (finding("ranks", rank=5), change("ranks", 4)),
        (finding("ranks", rank=5), change("ranks", 4, 5)),
        (finding("ranks", rank=5), change("data", 5)),
        (finding("data", rank=2), change("data", 3)),
    ],
)
def test_the_saving_of_something_else_is_not_taken(of_finding: Finding, replayed: Change) -> None:
    stated = state_saving(of_finding, whatif(replayed))

    assert (stated.saving_ns, stated.saving_error_ns) == (None, None)
    assert stated.evidence == {"no_replay": "no replay of this change saves more than its error"}


@pytest.mark.parametrize(("error", "certainty"), [(-0.21, "likely"), (0.21, "likely"), (0.09, "sure")])
def test_nothing_is_sure_whose_saving_comes_from_a_replay_far_off_the_measured_step(
    error: float, certainty: str
) -> None:
    replayed = replace(whatif(change("ranks", 9)), replay_error=error)
    stated = with_replay_error(state_saving(finding("ranks", rank=9), replayed), replayed)

    assert stated.certainty == certainty
    assert stated.evidence.get("replay_error") == (error if certainty == "likely" else None)


def test_the_best_remedy_that_was_replayed_counts() -> None:
    changes = [change("ranks", 0, what="rank 0 at its peers' median"), change("load", 0, what="even expert load")]
    stated = state_saving(finding("load", rank=0), whatif(*changes))

    assert stated.evidence["change"] == "even expert load"


@pytest.mark.parametrize(
    ("replayed", "reason"),
    [
        (Unavailable(reason="no step that all ranks completed"), "no step that all ranks completed"),
        (None, "the section whatif was not asked for"),
    ],
)
def test_without_a_replay_there_is_no_saving_but_a_reason(replayed: Unavailable | None, reason: str) -> None:
    stated = state_saving(finding("ranks", rank=1), replayed)

    assert (stated.saving_ns, stated.evidence["no_replay"]) == (None, reason)


def test_an_estimate_of_what_no_replay_can_show_is_dropped() -> None:
    stated = state_saving(finding(None), whatif(change("communication")))

    assert (stated.saving_ns, stated.evidence["no_replay"]) == (None, "no replay has this change")


def test_the_reason_that_a_section_gives_stays() -> None:
    given = replace(finding(None), saving_ns=None, evidence={"no_replay": "no kernel is known with TF32"})

    assert state_saving(given, whatif()) == given


def test_a_saving_that_a_section_has_replayed_itself_stays() -> None:
    of_buckets = replace(finding(None), saving_error_ns=100)

    assert state_saving(of_buckets, whatif(change("communication"))) == of_buckets


def test_results_of_sections_get_findings_that_state_savings() -> None:
    """GIVEN a section with a finding and one that has no result WHEN no what-if ran THEN only the first one changes."""
    results: Mapping[str, object] = {
        "phases": StepPhases(parts=[], by_phase=[], ranks=[], findings=(finding("data", rank=1),)),
        "whatif": Unavailable(reason="one rank alone"),
    }
    stated = with_stated_savings(results)

    assert stated["whatif"] is results["whatif"]
    assert stated["phases"].findings[0].evidence["no_replay"] == "one rank alone"


def test_a_stage_that_loads_longer_than_others_saves_what_loading_ahead_does() -> None:
    """GIVEN a rank that has no peers to be at, as a stage of a pipeline has none."""
    blamed = replace(finding("ranks", rank=2), cause="data")
    stated = state_saving(blamed, whatif(change("data", 2)))
    assert (stated.saving_ns, stated.saving_error_ns) == (2_600_000, 50_000)
    computing = state_saving(replace(blamed, cause="compute"), whatif(change("data", 2)))
    assert computing.saving_ns is None
