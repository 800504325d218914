"""Checks of verdicts and savings: false alarms, wrong culprits, causes and savings are seen."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks.studies.gpu_jobs.checks import savings, verdicts
from tests.gpu_jobs import Defect, JobSpec, simulate
from tests.unit.benchmarks.studies.gpu_jobs.hand_made import MS, ddp, evidence, message, slow_rank

COSTS_1_MS = {"counterfactual_step_ns": 9.0 * MS}
COSTS_NOTHING = {"counterfactual_step_ns": 9.9 * MS}


def finding(text="rank 2 computes longer", **changes):
    return SimpleNamespace(**({"text": text, "rank": None, "saving_ns": None, "evidence": {}} | changes))


def stragglers(rank=None, cause=None, *, link=None, saving_ns=None, caused_ns=MS):
    found = () if saving_ns is None else (finding(rank=rank, saving_ns=saving_ns),)
    link = None if link is None else SimpleNamespace(ranks=link)
    verdict = SimpleNamespace(rank=rank, ranks=(), cause=cause, link=link, caused_delay_ns=caused_ns, text="")
    return {"stragglers": SimpleNamespace(verdict=verdict, findings=found), "findings": found}


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (stragglers(), "right"),
        (stragglers(1, "compute"), "wrong"),
        (stragglers(link=(0, 1)), "wrong"),
        (stragglers() | {"findings": (finding(rank=3),)}, "wrong"),
        (
            stragglers()
            | {"pipeline": SimpleNamespace(uneven_stage=SimpleNamespace(stage=1, ranks=(1,)), findings=())},
            "wrong",
        ),
    ],
)
def test_whoever_is_blamed_in_a_healthy_job_is_a_false_alarm(report, verdict):
    assert verdicts.no_false_alarm(evidence(ddp(4), report=report)).verdict == verdict


def test_a_host_that_is_blamed_is_a_false_alarm():
    summaries = [SimpleNamespace(rank=rank, host=f"node{rank // 2}", machine=f"node{rank // 2}") for rank in range(4)]
    blamed = stragglers() | {
        "findings": (finding("slow transfers", evidence={"host": "node1"}),),
        "run": SimpleNamespace(ranks=summaries),
    }

    outcome = verdicts.no_false_alarm(evidence(ddp(4), report=blamed))

    assert (outcome.verdict, outcome.seen) == ("wrong", "host (2, 3): slow transfers")


@pytest.mark.parametrize(
    ("report", "named", "others", "cause"),
    [
        (stragglers(2, "compute"), "right", "right", "right"),
        (stragglers(2, "host"), "right", "right", "wrong"),
        (stragglers(1, "compute"), "wrong", "wrong", "abstained"),
        (stragglers(link=(2, 3)), "wrong", "wrong", "abstained"),
        (stragglers(), "abstained", "right", "abstained"),
    ],
)
def test_the_planted_rank_must_be_named_with_its_cause_and_nobody_else(report, named, others, cause):
    given = evidence(slow_rank(2), truth=COSTS_1_MS, report=report)

    assert verdicts.culprit(given).verdict == named
    assert verdicts.nobody_else(given).verdict == others
    assert verdicts.cause(given).verdict == cause


def test_a_defect_that_costs_next_to_nothing_need_not_be_named():
    given = evidence(slow_rank(2), truth=COSTS_NOTHING, report=stragglers())

    assert (verdicts.culprit(given), verdicts.cause(given)) == (None, None)


def test_but_if_another_rank_is_named_for_it_that_is_wrong():
    given = evidence(slow_rank(2), truth=COSTS_NOTHING, report=stragglers(0, "compute"))

    assert (verdicts.culprit(given).verdict, verdicts.nobody_else(given).verdict) == ("wrong", "wrong")


@pytest.mark.parametrize(("link", "verdict"), [((1, 0), "right"), ((1, 2), "wrong")])
def test_a_slow_edge_is_named_by_its_two_ranks_in_either_order(link, verdict):
    defect = Defect(cause="slow_edge", ranks=(0, 1), delay_us=1000.0)
    spec = JobSpec(family="pipeline", pp=4, layers=4, defect=defect)

    assert verdicts.culprit(evidence(spec, truth=COSTS_1_MS, report=stragglers(link=link))).verdict == verdict


@pytest.mark.parametrize(
    ("pairs", "transfer_ns", "hosts_named", "is_asked"),
    [
        pytest.param([(0, 1), (1, 0)], 1000, True, True, id="4 GB/s within a host"),
        pytest.param([(0, 1), (1, 0)], 300, True, False, id="14 GB/s may be PCIe"),
        pytest.param([(0, 1), (1, 0)], 1000, False, False, id="perhaps a network"),
        pytest.param([(0, 1), (1, 2)], 300, False, True, id="two edges to compare"),
    ],
)
def test_a_slow_edge_that_nothing_shows_need_not_be_named(pairs, transfer_ns, hosts_named, is_asked):
    """GIVEN messages of 4096 bytes over a slow edge THEN to abstain is no fault where the traces do not show it."""
    defect = Defect(cause="slow_edge", ranks=(0, 1), delay_us=1000.0)
    spec = JobSpec(family="pipeline", pp=2, defect=defect, sequence_numbers=hosts_named)
    messages = tuple(message(*pair, 5000, transfer_ns=transfer_ns) for pair in pairs)
    report = stragglers() | {"whatif": SimpleNamespace(changes=[])}

    given = evidence(spec, truth=COSTS_1_MS | {"messages": messages}, report=report)

    outcomes = [
        check(given)
        for check in (verdicts.culprit, verdicts.cause, savings.saving_of_finding, savings.saving_of_whatif)
    ]
    assert [outcome and outcome.verdict for outcome in outcomes] == ["abstained" if is_asked else None] * 4


@pytest.mark.parametrize(("caused_ns", "verdict"), [(MS, "right"), (1_200_000, "wrong"), (500_000, "wrong")])
def test_the_delay_of_the_verdict_is_compared_with_the_planted_one(caused_ns, verdict):
    given = evidence(slow_rank(2), truth=COSTS_1_MS, report=stragglers(2, "compute", caused_ns=caused_ns))

    assert verdicts.delay_of_the_verdict(given).verdict == verdict


@pytest.mark.parametrize(("saving_ns", "verdict"), [(950_000, "right"), (850_000, "wrong"), (None, "abstained")])
def test_the_saving_of_a_finding_may_be_off_by_a_tenth(saving_ns, verdict):
    given = evidence(slow_rank(2), truth=COSTS_1_MS, report=stragglers(2, "compute", saving_ns=saving_ns))

    assert savings.saving_of_finding(given).verdict == verdict


def test_of_several_findings_on_the_culprit_each_must_be_right():
    report = stragglers(2, "data", saving_ns=MS)
    report["findings"] += (finding("rank 2 loads data", rank=2, saving_ns=90_000),)

    assert savings.saving_of_finding(evidence(slow_rank(2, "data"), truth=COSTS_1_MS, report=report)).verdict == "wrong"


def change(what, saves_ns, rank=None):
    ranks = () if rank is None else (rank,)
    return SimpleNamespace(what=what, remedy="ranks", saves_ns_per_step=saves_ns, rank=rank, ranks=ranks)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ([change("rank 2 at its peers' median", MS, rank=2)], "right"),
        ([change("rank 2 at its peers' median", 700_000, rank=2)], "wrong"),
        ([change("rank 1 at its peers' median", MS, rank=1)], "abstained"),
        ([], "abstained"),
    ],
)
def test_the_saving_of_a_replay_is_compared_with_the_job_without_the_defect(changes, verdict):
    report = {"whatif": SimpleNamespace(changes=changes)}

    assert savings.saving_of_whatif(evidence(slow_rank(2), truth=COSTS_1_MS, report=report)).verdict == verdict


@pytest.mark.parametrize(("saves_ns", "verdict"), [(200_000, "right"), (400_000, "wrong")])
def test_there_is_nothing_to_be_had_from_one_rank_of_a_healthy_job(saves_ns, verdict):
    report = {"whatif": SimpleNamespace(changes=[change("rank 1 at its peers' median", saves_ns, rank=1)])}

    assert savings.healthy_whatif(evidence(ddp(4), report=report)).verdict == verdict


@pytest.mark.parametrize(("saves_ns", "verdict"), [(3 * MS, "right"), (1.5 * MS, "wrong")])
def test_without_transfers_a_slow_edge_takes_no_time_either(saves_ns, verdict):
    """GIVEN a step that is 3 ms longer than without any time for messages, slow or not."""
    healthy = JobSpec(family="pipeline", pp=2, layers=2, microbatches=2, message_us=0.001)
    spec = replace(healthy, message_us=30.0, defect=Defect(cause="slow_edge", ranks=(0, 1), delay_us=2000.0))
    hidden_ns = simulate(healthy).truth.mean_step_ns
    found = SimpleNamespace(changes=(SimpleNamespace(remedy="network", saves_ns_per_step=saves_ns),))

    given = evidence(spec, truth={"mean_step_ns": hidden_ns + 3 * MS}, report={"whatif": found})

    assert savings.saving_of_free_communication(given).verdict == verdict
