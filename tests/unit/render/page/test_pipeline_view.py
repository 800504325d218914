"""One step of a pipeline as it ran, on simulated jobs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.gpu_jobs import simulate, spec_of
from tracekit.api import Report
from tracekit.render.page.charts import pipeline_view


@pytest.fixture(scope="module")
def report() -> Report:
    return simulate(spec_of("pipeline", seed=7, cause="uneven_stage")).report(only=["pipeline"])


def test_a_rank_is_busy_or_in_a_bubble_at_every_instant(report: Report) -> None:
    view = pipeline_view(report)
    assert view is not None
    assert view["gaps"] is not None

    for rank in view["ranks"]:
        edges = sorted(
            (start_ns, end_ns)
            for columns in (view, view["gaps"])
            for of, start_ns, end_ns in zip(columns["rank"], columns["start_ns"], columns["end_ns"], strict=True)
            if of == rank
        )
        assert edges[0][0] == 0
        assert edges[-1][1] == view["length_ns"]
        assert all(end_ns == next_ns for (_, end_ns), (next_ns, _) in pairwise(edges))


def test_an_uneven_stage_shows_in_the_colours_of_the_bubbles(report: Report) -> None:
    view = pipeline_view(report)
    assert view is not None
    assert view["gaps"] is not None
    gaps = view["gaps"]
    lengths_ns = dict.fromkeys(gaps["cause"], 0)
    for cause, start_ns, end_ns in zip(gaps["cause"], gaps["start_ns"], gaps["end_ns"], strict=True):
        lengths_ns[cause] += end_ns - start_ns

    assert lengths_ns["imbalance"] > max(lengths_ns.get("transfer", 0), lengths_ns.get("late_peer", 0))


def test_ranks_are_left_out_where_there_are_too_many_actions(report: Report) -> None:
    whole = pipeline_view(report)
    assert whole is not None
    first = pipeline_view(report, most_actions=len(whole["rank"]) // len(whole["ranks"]))
    assert first is not None

    assert first["ranks"] == whole["ranks"][:1]
    assert set(first["rank"]) == set(first["ranks"])
    assert first["text"] == f"1 of its {len(whole['ranks'])} ranks are shown."
    assert whole["text"] is None


def test_a_run_without_a_pipeline_has_none() -> None:
    assert pipeline_view(simulate(spec_of("ddp", seed=1)).report(only=["pipeline"])) is None
