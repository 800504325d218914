"""Tables with planted defects: what is named, and what it would save against steps simulated without the defect."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.optables.simulated import diagnose, simulate
from tracekit.errors import InputError
from tracekit.explain.pipeline.bubbles import closed_form_bubble_ratio
from tracekit.model.metadata import PipelineLayout
from tracekit.model.table import rows_of
from tracekit.optables.diagnosis import TableDiagnosis

MS = 1_000_000
STALLS = {(2, 2, "F", 4): 60 * MS, (4, 4, "B", 2): 80 * MS, (5, 1, "B", 6): 50 * MS}


def step_lengths_ns(table: pd.DataFrame) -> dict[int, int]:
    start, end = (table[name].astype("int64").groupby(table["step"].astype(int)) for name in ("start_ns", "end_ns"))
    return dict(end.max() - start.min())


def numbers(diagnosis: TableDiagnosis) -> dict[str, object]:
    """Return everything that the diagnosis says but notes."""
    assert diagnosis.pipeline is not None
    return {
        "whatif": {**asdict(diagnosis.whatif), "notes": ()},
        "causes": diagnosis.pipeline.causes_ns,
        "ranks": rows_of(diagnosis.pipeline, "by_rank"),
        "critical_path": diagnosis.critical_path.to_dict("records"),
        "outliers": diagnosis.outliers.outliers,
        "findings": [finding.text for finding in diagnosis.findings],
    }


def test_a_pipeline_without_defects_has_the_bubbles_of_its_schedule() -> None:
    """GIVEN equal operations and no noise THEN warm-up, drain and transfers are all of the bubbles, and none is new."""
    found = diagnose(simulate(noise=0.0, tail=False))
    pipeline = found.pipeline
    assert pipeline is not None
    layout = PipelineLayout(schedule="1f1b", stages=4, virtual_stages=1, microbatches=8, stage_ids=[0])
    assert pipeline.schedule == "1f1b"
    assert pipeline.ideal_bubble_ratio == closed_form_bubble_ratio(layout, 4) == pytest.approx(3 / 11)
    assert pipeline.causes_ns is not None
    causes = pipeline.causes_ns
    # 3 forwards and 3 backwards of 4 ranks in 6 steps: (p - 1)(F + B) a rank
    assert causes["warmup_ns"] + causes["drain_ns"] == 6 * 4 * 3 * 30 * MS
    assert causes["imbalance_ns"] == causes["late_peer_ns"] == causes["other_ns"] == 0
    assert causes["transfer_ns"] > 0
    assert (found.slow_ranks, found.stalls, found.outliers.outliers) == ((), None, ())
    assert [finding.cause for finding in found.findings] == ["bubble"]
    assert found.whatif.replay_error == 0


def test_what_removing_one_outlier_saves_is_what_a_simulation_without_it_saves() -> None:
    """GIVEN three stalls in three steps THEN the saving of each is by how much its step is shorter without it."""
    table = simulate(replicas=2, longer_ns=STALLS)
    found = diagnose(table)
    calm_ns, stalled_ns = step_lengths_ns(simulate(replicas=2)), step_lengths_ns(table)
    assert {(o.step, o.rank, o.operation[0].upper(), o.microbatch) for o in found.outliers.outliers} == set(STALLS)
    for outlier in found.outliers.outliers:
        assert outlier.certainty == "sure"
        lost_ns = stalled_ns[outlier.step] - calm_ns[outlier.step]
        assert outlier.saves_ns == pytest.approx(lost_ns, abs=0.5 * MS)  # usual is a median over steps with noise
        assert outlier.saves_ns <= outlier.duration_ns - outlier.usual_ns + 1
    together_ns = sum(stalled_ns.values()) - sum(calm_ns.values())
    assert found.outliers.stalls_ns == pytest.approx(together_ns / 6, abs=0.5 * MS)
    assert found.stalls is not None
    assert (found.stalls.pattern, found.stalls.count, found.stalls.steps) == ("wandering", 3, 3)
    assert found.slow_ranks == ()


def test_a_persistent_straggler_is_no_stall() -> None:
    """GIVEN a rank that is slow in all steps THEN it is named with its saving, and nothing wanders."""
    found = diagnose(simulate(replicas=3, slow_ranks={6: 1.4}, steps=8))
    (slow,) = found.slow_ranks
    assert (slow.rank, slow.certainty, slow.shown, slow.peers) == (6, "sure", 8, 2)
    assert slow.beyond_ns == pytest.approx(0.4 * 8 * 30 * MS, rel=0.02)
    assert (found.stalls, found.outliers.outliers) == (None, ())
    calm, measured = (
        np.mean([*step_lengths_ns(simulate(replicas=3, slow_ranks=slow_ranks, steps=8)).values()])
        for slow_ranks in ({}, {6: 1.4})
    )
    first = found.findings[0]
    assert (first.rank, first.cause) == (6, "slow_compute")
    assert first.saving_ns == pytest.approx(measured - calm, rel=0.05)


def test_stalls_of_one_rank_that_come_again_are_told_from_those_that_wander() -> None:
    stalls = {(step, 1, "F", step % 3): 60 * MS for step in (0, 2, 4, 6)}
    found = diagnose(simulate(steps=8, longer_ns=stalls))
    assert found.stalls is not None
    assert (found.stalls.pattern, found.stalls.rank, found.stalls.steps) == ("recurring", 1, 4)
    assert any("rank 1 stalls again and again" in finding.text for finding in found.findings)


def test_a_microbatch_with_more_work_is_no_stall() -> None:
    """GIVEN microbatches whose forward and backward are longer everywhere THEN microbatches differ."""
    long = {
        (step, rank, kind, step % 4): length
        for step in range(2, 8, 2)
        for rank in range(4)
        for kind, length in (("F", 10 * MS), ("B", 20 * MS))
    }
    found = diagnose(simulate(steps=8, longer_ns=long))
    assert found.stalls is not None
    assert found.stalls.pattern == "microbatches"
    assert "stalls" in {finding.id for finding in found.findings}


def test_an_uneven_stage_is_named_with_what_even_stages_save() -> None:
    found = diagnose(simulate(slow_stages={2: 1.5}, noise=0.005))
    (uneven,) = (finding for finding in found.findings if finding.remedy == "stages")
    assert "stage 2 (rank 2) takes 1.50 times as long as the other stages" in uneven.text
    assert uneven.saving_ns is not None
    assert uneven.saving_ns > 0


def test_a_step_that_is_slow_as_a_whole_has_no_outliers() -> None:
    found = diagnose(simulate(steps=8, slow_steps=(5,)))
    assert found.outliers.outliers == ()
    assert found.outliers.slow_steps == {5: pytest.approx(3.0, rel=0.02)}
    assert any("step 5 is slow as a whole" in note for note in found.notes)


def test_a_first_step_that_is_longer_is_left_out() -> None:
    table = simulate(steps=6, slow_steps=(0,))
    found = diagnose(table)
    assert found.whatif.steps == 5
    assert any("step 0 left out" in note for note in found.notes)


def test_stages_that_a_rank_has_several_of() -> None:
    found = diagnose(simulate(schedule="interleaved1f1b", virtual_stages=2, steps=3))
    assert found.pipeline is not None
    assert (found.pipeline.schedule, found.pipeline.stages) == ("interleaved1f1b", 8)
    assert found.whatif.replay_error == 0


def test_the_critical_path_of_a_step_sums_to_the_step() -> None:
    table = simulate(replicas=2, longer_ns=STALLS)
    path = diagnose(table).critical_path
    assert path.groupby("step")["total_ns"].sum().to_dict() == step_lengths_ns(table)
    of_ranks = path.groupby(["step", "rank"])["total_ns"].sum().unstack(fill_value=0)
    assert of_ranks.idxmax(axis=1)[[2, 4]].tolist() == [2, 4]  # the ranks that stall


def test_a_missing_stage_and_a_stage_on_two_ranks_are_refused() -> None:
    table = simulate(steps=2)
    with pytest.raises(InputError, match="3 stages are numbered from 0"):
        diagnose(table[table["rank"] != "1"].reset_index(drop=True))
    twice = table.assign(stage=table["stage"].replace("3", "2"))
    with pytest.raises(InputError, match="do not have forwards and backwards of each stage once"):
        diagnose(twice)


def test_clocks_that_disagree_are_noted() -> None:
    """GIVEN a rank whose clock is 5 ms behind THEN its forwards begin before those that they need have ended."""
    table = simulate(steps=3)
    behind = table["rank"] == "2"
    for name in ("start_ns", "end_ns"):
        table.loc[behind, name] = (table.loc[behind, name].astype("int64") - 5 * MS).astype(str)
    assert any("begin before what they need has ended, by up to 4" in note for note in diagnose(table).notes)


UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 99), unit=st.sampled_from(sorted(UNITS)), shuffle=st.randoms(use_true_random=False))
def test_order_of_columns_and_rows_units_and_other_columns_change_nothing(seed, unit, shuffle) -> None:  # type: ignore[no-untyped-def]
    table = simulate(steps=3, microbatches=4, replicas=2, seed=seed, longer_ns={(1, 1, "F", 2): 30 * MS})
    expected = numbers(diagnose(table))
    changed = table.drop(columns=["start_ns", "end_ns"])
    for name in ("start", "end"):
        digits = len(str(UNITS[unit])) - 1
        values = [text.zfill(digits + 1) for text in table[f"{name}_ns"]]
        changed[f"{name}_{unit}"] = [f"{v[: len(v) - digits]}.{v[len(v) - digits :]}" if digits else v for v in values]
    changed["color"] = "blue"
    names = list(changed.columns)
    shuffle.shuffle(names)
    rows = list(range(len(changed)))
    shuffle.shuffle(rows)
    actual = numbers(diagnose(changed[names].iloc[rows].reset_index(drop=True)))
    assert actual == expected


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 99),
    stalls=st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from("FB"), st.integers(0, 3)),
        st.integers(20 * MS, 200 * MS),
        min_size=1,
        max_size=6,
    ),
)
def test_no_saving_exceeds_what_an_operation_lasts_beyond_the_usual(seed, stalls) -> None:  # type: ignore[no-untyped-def]
    found = diagnose(simulate(microbatches=4, seed=seed, longer_ns=stalls, noise=0.03))
    for outlier in found.outliers.outliers:
        assert 0 <= outlier.saves_ns <= outlier.duration_ns - outlier.usual_ns + 1
    total_ns = sum(outlier.duration_ns - outlier.usual_ns for outlier in found.outliers.outliers)
    assert found.outliers.stalls_ns * found.whatif.steps <= total_ns + 10
