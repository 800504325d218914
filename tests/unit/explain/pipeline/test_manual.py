"""Pipelines written by hand: lines of ranks, unlike rings, stars and other messages."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.exchanges import Message, actions, clocks, rank, recv, send
from tracekit.explain.pipeline.manual_layout import find_lines, with_manual_pipelines
from tracekit.explain.pipeline.tables import ACTIONS, Actions
from tracekit.job.messages import match_messages
from tracekit.model.summary import RankSummary


@pytest.mark.parametrize(
    ("edges", "lines"),
    [
        ([], []),
        ([(0, 1), (1, 2), (2, 3)], [(0, 1, 2, 3)]),
        ([(3, 1), (1, 0)], [(3, 1, 0)]),  # in any order of ranks
        ([(0, 1), (2, 3)], [(0, 1), (2, 3)]),  # two pipelines
        ([(0, 1), (1, 2), (0, 2)], [(0, 1, 2)]),  # a connection that skips a stage
        ([(0, 1), (1, 2), (2, 0)], []),  # a ring
        ([(0, 1), (1, 0)], []),
        ([(1, 0), (2, 0), (3, 0)], []),  # a star
        ([(0, 1), (0, 2), (1, 3), (2, 3)], []),  # a diamond: 1 and 2 stand side by side
        ([(0, 1), (2, 1)], []),
        ([(0, 1), (2, 3), (3, 2)], [(0, 1)]),
    ],
)
def test_only_lines_are_pipelines(edges: list[tuple[int, int]], lines: list[tuple[int, ...]]) -> None:
    assert find_lines(edges) == lines


@given(order=st.permutations(range(6)), skips=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_a_line_is_found_whatever_connections_skip_stages(order: list[int], skips: set[tuple[int, int]]) -> None:
    along = list(pairwise(order))
    over = [(order[a], order[b]) for a, b in skips if a < b]
    assert find_lines([*over, *along]) == [tuple(order)]


def stages(*rows: tuple[list[Message], bool]) -> tuple[RankSummary, ...]:
    """Return ranks with these messages and one forward, some with one backward, after pipelines are found."""
    ranks = []
    for number, (messages, backward) in enumerate(rows):
        rank_actions = actions(("F", 0, 0, 10), *([("B", 0, 20, 30)] if backward else []), stage=-1)
        ranks.append(rank(number, messages, actions=rank_actions))
    return with_manual_pipelines(ranks, match_messages(ranks, clocks(len(ranks)))[0])


def test_activations_forward_and_gradients_back_make_a_pipeline() -> None:
    first = [send(1, 10, after="F"), recv(1, 19, after="F", before="B")]
    second = [recv(0, 11, before="F"), send(0, 30, after="B"), send(2, 15, after="F"), recv(2, 16, before="B")]
    third = [recv(1, 16, before="F"), send(1, 17, after="B", took_ns=1)]
    summaries = stages((first, True), (second, True), (third, True))

    assert [summary.strategies for summary in summaries] == [("pp",)] * 3
    assert [summary[ACTIONS].stage.tolist() for summary in summaries] == [[0, 0], [1, 1], [2, 2]]
    for stage, summary in enumerate(summaries):
        layout = summary.pipeline.layout
        assert layout is not None
        assert (layout.schedule, layout.stages, layout.virtual_stages, layout.microbatches) == ("manual", 3, 1, 1)
        assert layout.stage_ids == [stage]
        assert summary.pipeline.ranks == (0, 1, 2)
        assert [group.parallelism for group in summary.groups] == ["pp"]


def test_a_ring_in_the_forward_is_no_pipeline() -> None:
    summaries = stages(
        *(([send((r + 1) % 3, 5, after="F"), recv((r - 1) % 3, 5, before="F")], False) for r in range(3))
    )
    assert [(s.strategies, s.pipeline, len(s[ACTIONS])) for s in summaries] == [((), None, 0)] * 3
    assert {group.parallelism for summary in summaries for group in summary.groups} == {None}


def test_messages_outside_of_passes_are_no_pipeline() -> None:
    summaries = stages(([send(1, 0)], True), ([recv(0, 1)], True))
    assert [(summary.pipeline, len(summary[ACTIONS])) for summary in summaries] == [(None, 0)] * 2


def test_a_rank_without_actions_stays_as_it_is() -> None:
    ranks = [rank(0), rank(1)]
    assert with_manual_pipelines(ranks, match_messages(ranks, clocks(2))[0]) == tuple(ranks)


@pytest.mark.parametrize("lost", ["passes", "messages", "peers"])
def test_a_stage_of_which_something_is_lost_is_a_stage(lost: str) -> None:
    """GIVEN stages 0 to 3, and rank 2 without its passes, all of its messages, or what names the peers of these THEN
    ranks 0 and 1 are no pipeline by themselves."""

    def between(earlier: int, at: int) -> tuple[list[Message], list[Message]]:
        later = earlier + 1
        return (
            [send(later, at, after="F"), recv(later, at + 9, after="F", before="B")],
            [recv(earlier, at + 1, before="F"), send(earlier, at + 10, after="B")],
        )

    edges = [between(stage, 10 * stage) for stage in range(3)]
    messages = [edges[0][0], [*edges[0][1], *edges[1][0]], [*edges[1][1], *edges[2][0]], edges[2][1]]
    if lost == "messages":
        messages[2] = []
    if lost == "peers":
        messages[2] = [replace(message, peer=0) for message in messages[2]]
    passes = actions(("F", 0, 0, 10), ("B", 0, 20, 30), stage=-1)
    known = [passes] * 4
    if lost != "peers":
        known[2] = Actions.empty()
    ranks = [rank(number, messages[number], actions=known[number]) for number in range(4)]
    summaries = with_manual_pipelines(ranks, match_messages(ranks, clocks(4))[0])

    of_pipeline = [summary for summary in summaries if summary.pipeline is not None]
    assert [summary.rank for summary in of_pipeline] == ([0, 1, 2, 3] if lost == "peers" else [0, 1, 3])
    assert {summary.pipeline.ranks for summary in of_pipeline} == {(0, 1, 2, 3)}
    assert all(set(summary[ACTIONS].stage.tolist()) == {summary.rank} for summary in of_pipeline)


def test_results_that_are_sent_to_a_rank_without_passes_make_it_no_stage() -> None:
    first = [send(1, 10, after="F"), recv(1, 19, after="F", before="B")]
    second = [recv(0, 11, before="F"), send(0, 30, after="B"), send(2, 15, after="F")]
    passes = actions(("F", 0, 0, 10), ("B", 0, 20, 30), stage=-1)
    ranks = [rank(0, first, actions=passes), rank(1, second, actions=passes), rank(2, [recv(1, 16)])]
    summaries = with_manual_pipelines(ranks, match_messages(ranks, clocks(3))[0])
    assert [summary.pipeline and summary.pipeline.ranks for summary in summaries] == [(0, 1), (0, 1), None]


def test_a_line_includes_a_rank_whose_trace_is_missing() -> None:
    """GIVEN stages 0, 1 and 2 without the trace of rank 1 THEN the stages of the others are known."""
    present = [
        rank(0, [send(1, 10, after="F")], actions=actions(("F", 0, 0, 10), stage=-1)),
        rank(2, [recv(1, 11, before="F")], actions=actions(("F", 0, 20, 30), stage=-1)),
    ]
    summaries = with_manual_pipelines(present, match_messages(present, clocks(3))[0])
    assert [summary[ACTIONS].stage.tolist() for summary in summaries] == [[0], [2]]
    assert {summary.pipeline.ranks for summary in summaries} == {(0, 1, 2)}
