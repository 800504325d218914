"""Which changes of a what-if are findings: a slow rank that no collective shows, and uneven stages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.exchanges import rank, run_of, send
from benchmarks.simulated import Cluster
from tracekit.explain.pipeline.uneven_stage import UnevenStage
from tracekit.explain.whatif.candidates import BALANCED_STAGES
from tracekit.explain.whatif.changes import Change
from tracekit.explain.whatif.sections import whatif_findings
from tracekit.explain.whatif.whatif import WhatIf
from tracekit.findings.finding import Remedy, held
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Run
from tracekit.model.summary import PipelineMembership

ALONE = run_of([rank(0), rank(1)])


def change(what: str, remedy: Remedy, saves_ns: int, *ranks: int, error_ns: int = 0) -> Change:
    return Change(
        what=what,
        remedy=remedy,
        saves_ns_per_step=saves_ns,
        error_ns=error_ns,
        share=saves_ns / 10_000_000,
        rank=ranks[0] if len(ranks) == 1 else None,
        ranks=ranks,
    )


SLOW_RANK = change("rank 1 at its peers' median", "ranks", 2_000_000, 1)
STAGES = change(BALANCED_STAGES, "stages", 1_500_000, error_ns=250_000)
SMALL = change(BALANCED_STAGES, "stages", 400_000)


def result_of(*changes: Change, waited_for: tuple[int, ...] = (1,)) -> WhatIf:
    return WhatIf(
        steps=3, measured_ns=10_000_000, replayed_ns=10_000_000, ideal_ns=8_000_000, slowdown=1.25, replay_error=0.01,
        by_rank={}, by_type={}, by_stage={}, slowest_ranks_share=None, last_stage_share=None, changes=changes, notes=(),
        waited_for=frozenset(waited_for),
    )  # fmt: skip


def meeting_ranks() -> Run:
    cluster = Cluster(2)
    for _ in cluster.steps(1):
        cluster.collective((0, 1), transfer=10)
    return cluster.run()


def test_a_slow_rank_and_uneven_stages_are_findings_with_what_they_save() -> None:
    slow_rank, stages = whatif_findings(ALONE, result_of(SLOW_RANK, STAGES))

    assert (slow_rank.severity, slow_rank.rank, slow_rank.saving_ns) == ("warning", 1, 2_000_000)
    assert "rank 1 computes longer than its peers" in slow_rank.text
    assert (stages.severity, stages.rank, stages.saving_ns) == ("info", None, 1_500_000)
    assert (slow_rank.remedy, slow_rank.ranks, stages.remedy) == ("ranks", (1,), "stages")
    assert (stages.saving_error_ns, stages.evidence) == (250_000, {"replay_error": 0.01})


def test_a_slow_rank_that_nobody_waits_for_is_no_finding() -> None:
    assert whatif_findings(ALONE, result_of(SLOW_RANK, waited_for=())) == []


def test_of_a_slow_rank_that_nobody_waits_for_the_rate_is_told() -> None:
    run = run_of([rank(i, [send(1 - i, 5)], steps=(5, 6)) for i in range(3)])
    slow = run.ranks[1]
    longer = replace(slow, steps=tuple(replace(step, step_ns=3 * step.step_ns) for step in slow.steps))

    (finding,) = whatif_findings(replace(run, ranks=(run.ranks[0], longer, run.ranks[2])), result_of(waited_for=()))

    assert finding.rank == 1
    assert finding.text.endswith(". No rank is seen to wait for another")


def test_where_ranks_meet_in_collectives_another_section_names_the_slow_rank() -> None:
    findings = whatif_findings(meeting_ranks(), result_of(SLOW_RANK, STAGES))

    assert [finding.saving_ns for finding in findings] == [1_500_000]


@pytest.mark.parametrize("changes", [(), (SMALL,)])
def test_less_than_a_twentieth_of_the_step_is_no_finding(changes: tuple[Change, ...]) -> None:
    assert held(whatif_findings(ALONE, result_of(*changes))) == ()


def test_a_stage_of_a_pipeline_is_not_compared_with_the_others_as_if_they_were_its_peers() -> None:
    layout = PipelineLayout(schedule="GPipe", stages=2, virtual_stages=1, microbatches=4, stage_ids=[0])
    stages = [replace(rank(i), pipeline=PipelineMembership(layout=layout, ranks=(0, 1))) for i in range(2)]

    assert [finding.rank for finding in whatif_findings(run_of(stages), result_of(SLOW_RANK, STAGES))] == [None]


def test_a_stage_that_is_named_already_gets_no_second_finding() -> None:
    uneven = UnevenStage(
        stage=1, ranks=(1,), factor=2.0, work_ns=20, others_ns=10, fastest=0, saves_ns_per_step=1, error_ns=0, share=0.1
    )

    assert whatif_findings(ALONE, result_of(SLOW_RANK, STAGES), uneven) == []
