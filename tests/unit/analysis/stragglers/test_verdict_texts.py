"""What the verdict says of a slow rank and of a slow link, by cause and by the number of peers."""

from __future__ import annotations

import pytest

from tracekit.analysis.communication.link_references import Reference
from tracekit.analysis.model_parallel.overload import Overload
from tracekit.analysis.stragglers.slow_transfers import Link
from tracekit.analysis.stragglers.verdict import action_text, link_text, rank_text, until_sure


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("host", "rank 1 spends 20% of the step longer between operations than its peers, which wait for it"),
        ("data", "rank 1 loads data for 20% of the step longer than its peers, which wait for it"),
        ("compute", "rank 1 computes 25% longer than its peers, which wait for it"),
        ("more_work", "rank 1 computes 25% longer than its peers, which wait for it: it has more work"),
    ],
)
def test_a_slow_rank_is_described_by_its_cause(cause: str, text: str) -> None:
    assert rank_text([1], None, cause, 0.2, 0.25, peers=3) == text


def test_one_peer_waits_for_several_ranks_of_a_machine() -> None:
    text = rank_text([0, 1], "node0", "more_work", 0.2, 0.25, peers=1)

    assert text == (
        "all ranks of host node0 (0-1) compute 25% longer than their peer, which waits for them: they have more work"
    )


@pytest.mark.parametrize(("estimated", "source"), [(False, ""), (True, " (estimated)")])
def test_a_rank_with_a_hot_expert_is_told_so(estimated: bool, source: str) -> None:
    overload = Overload(ratio=1.34, estimated=estimated, others=(), longer_ns=None)
    text = rank_text([1], None, "more_work", 0.2, 0.25, peers=3, overload=overload)

    assert text.endswith(f"which wait for it: its experts receive 1.34 times the mean of the others{source}")


def test_without_compute_of_peers_the_share_is_that_of_the_step() -> None:
    assert "computes 20% of the step longer" in rank_text([1], None, "compute", 0.2, None, peers=3)


def slow_link(ranks: tuple[int, ...], *, directed: bool = False, reference: Reference = "others alike") -> Link:
    return Link(ranks=ranks, carries_messages=directed, directed=directed, slowdown=3.0, reference=reference)


@pytest.mark.parametrize(
    ("ranks", "directed", "name"),
    [
        ((2, 5), True, "the link from rank 2 to rank 5 takes"),
        ((2, 5), False, "the link between ranks 2 and 5 takes"),
        ((2, 3, 5), False, "the links between ranks 2-3,5 take"),
    ],
)
def test_a_slow_link_is_described_by_its_ranks(ranks: tuple[int, ...], directed: bool, name: str) -> None:
    assert link_text(slow_link(ranks, directed=directed)) == f"{name} 3.0 times as long as others for the same"


@pytest.mark.parametrize(
    ("reference", "compared"),
    [
        ("links within hosts", "as links within hosts for the same (no other between hosts carries it)"),
        ("links between hosts", "as links between hosts for the same (no other within a host carries it)"),
        ("NVLink", "as NVLink would for the same"),
    ],
)
def test_a_link_without_others_alike_is_described_by_what_it_is_compared_with(
    reference: Reference, compared: str
) -> None:
    text = link_text(slow_link((1, 2), reference=reference))

    assert text == f"the link between ranks 1 and 2 takes 3.0 times as long {compared}"
    assert len(text) <= 150


@pytest.mark.parametrize(
    ("cause", "link", "overload", "named"),
    [
        ("compute", None, False, "clock rate"),
        ("more_work", None, False, "as much work"),
        ("more_work", None, True, "load of the experts of rank 3"),
        ("host", None, False, "stacks"),
        ("data", None, False, "load data ahead on rank 3"),
        ("link", slow_link((2, 5)), False, "the link between ranks 2 and 5"),
    ],
)
def test_each_cause_has_an_action(cause: str, link: Link | None, overload: bool, named: str) -> None:
    assert named in action_text((3,), None, cause, link, overload)


@pytest.mark.parametrize(("ranks", "device", "named"), [((3,), "gpu", "the GPU of"), ((3, 4), "gpu", "the GPUs of")])
def test_a_slow_gpu_is_called_one(ranks: tuple[int, ...], device: str, named: str) -> None:
    assert named in action_text(ranks, None, "compute", device=device)
    assert "processor" in action_text(ranks, None, "compute", device="cpu")


@pytest.mark.parametrize(
    ("steps", "missing", "text"),
    [
        (1, None, "record 10 steps to be sure"),
        (8, None, "record 16 steps to be sure"),
        (1, "the files of all ranks", "add the files of all ranks to be sure"),
    ],
)
def test_what_would_make_a_likely_verdict_sure(steps: int, missing: str | None, text: str) -> None:
    assert until_sure(steps, missing) == text
