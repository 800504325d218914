"""Kinds, groups and sizes of communication events."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.model.communication import DTYPES, KINDS, CommunicationEvents, FlightRecorderMatch, GroupKey, Unjoined
from tracekit.model.events import ABSENT

WORLD = GroupKey(description="", ranks=(0, 1))


def events(size_bytes: list[int]) -> CommunicationEvents:
    zeros = np.zeros(len(size_bytes), dtype=np.int64)
    return CommunicationEvents(
        groups=(WORLD,), row=zeros, start_ns=zeros, end_ns=zeros, kind=zeros.astype(np.int32),
        group=zeros.astype(np.int32), sequence=zeros, size_bytes=np.array(size_bytes, dtype=np.int64),
        dtype=zeros.astype(np.int32), launch_ns=zeros, launch_track=zeros.astype(np.int32), linked=zeros == 0,
    )  # fmt: skip


def test_kinds_and_data_types_are_distinct() -> None:
    assert len(set(KINDS)) == len(KINDS)
    assert len(set(DTYPES)) == len(DTYPES)


@pytest.mark.parametrize(("rows", "expected"), [([0, 1], 12), ([2], None), ([0, 2], None), ([], None)])
def test_a_sum_of_sizes_is_known_if_all_of_them_are(rows: list[int], expected: int | None) -> None:
    assert events([5, 7, ABSENT]).total_size_bytes(np.array(rows, dtype=np.int64)) == expected


def test_a_group_is_called_by_its_parallelism_then_its_description_then_its_name() -> None:
    keys = [GroupKey(description=d, ranks=(), name=n, parallelism=p) for d, n, p in
            (("mesh_tp", "3", "tp"), ("mesh_tp", "3", None), ("", "3", None), ("", "", None))]  # fmt: skip

    assert [key.label for key in keys] == ["tp", "mesh_tp", "3", None]
    assert keys[0] == keys[1]


def test_collectives_without_a_reason_against_it_are_joined() -> None:
    unjoined = tuple(
        Unjoined(kind="all_reduce", reason=reason, count=count, expected=False)
        for reason, count in (("a", 2), ("b", 3))
    )

    assert FlightRecorderMatch(recorded=10, unjoined=unjoined).joined == 5
