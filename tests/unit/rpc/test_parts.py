"""Windows of one rank are merged into one summary: nothing of its remote calls is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.loading.merged_parts import assert_merged_from_both, assert_not_lost
from tracekit.model.metadata import RpcUse
from tracekit.model.summary import Part
from tracekit.rpc.calls import REMOTE_CALLS
from tracekit.rpc.section import RPC_SECTION

# For each part a value that is not empty, for the later of two windows.
LATER: dict[Part[Any], Any] = {
    REMOTE_CALLS: RpcUse(worker="trainer", worker_id=1, calls=[], services=[], waits=[]),
}


def test_every_part_is_tested() -> None:
    assert LATER.keys() == RPC_SECTION.keeps.keys()


@pytest.mark.parametrize("part", LATER, ids=lambda part: part.name)
def test_a_part_that_only_a_later_window_has_is_not_lost(part: Part[Any]) -> None:
    assert_not_lost(part, LATER[part])


@pytest.mark.parametrize("part", LATER, ids=lambda part: part.name)
def test_a_part_that_two_windows_have_is_merged_from_both(part: Part[Any]) -> None:
    assert_merged_from_both(part, LATER[part])
