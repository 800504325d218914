"""What the verdict says of a slow rank and of a slow link, by cause and by the number of peers."""

from __future__ import annotations

import pytest

from tracekit.analysis.stragglers.slow_transfers import Link
from tracekit.analysis.stragglers.verdict_texts import link_text, rank_text


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("host", "rank 1 spends 20.0 ms a step (20% of it) longer between operations than "),
        ("data", "rank 1 loads data for 20.0 ms a step (20% of it) longer than "),
        (None, "rank 1 computes 20.0 ms a step (25%) longer than "),  # of the 80 ms that its peers compute
    ],
)
def test_a_slow_rank_is_described_by_its_cause(cause: str | None, text: str) -> None:
    peers = "the median of its peers, which wait for it in communication"

    assert rank_text(1, cause, 20e6, 100e6, 80e6, peers=3) == text + peers


def test_one_peer_is_no_median_and_more_work_is_said() -> None:
    text = rank_text(1, "more_work", 20e6, 100e6, 80e6, peers=1)

    assert text.endswith("longer than its peer, which waits for it in communication: it has more work")


def test_without_compute_of_peers_the_share_is_that_of_the_step() -> None:
    assert "(20% of it)" in rank_text(1, None, 20e6, 100e6, 1e6, peers=3)


@pytest.mark.parametrize(
    ("ranks", "directed", "name"),
    [
        ((2, 5), True, "the link from rank 2 to rank 5 takes"),
        ((2, 5), False, "the link from rank 2 to rank 5 takes"),
        ((2, 3, 5), False, "the links between ranks 2-3,5 take"),
    ],
)
def test_a_slow_link_is_described_by_its_ranks(ranks: tuple[int, ...], directed: bool, name: str) -> None:
    link = Link(ranks=ranks, directed=directed, slowdown=3.0)

    text = link_text(link, 20e6, 0.2)

    assert text == f"{name} 3.0 times as long as others for the same: 20.0 ms a step (20% of it)"
