"""Process groups and flight-recorder entries as records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tracekit.capture.groups import GroupTable, compact_ranks, flight_records
from tracekit.model.metadata import RankSlice


def test_ranks_are_written_in_the_shortest_form() -> None:
    assert compact_ranks(range(8), 8) == "world"
    assert compact_ranks([1, 5, 9, 13], 16) == RankSlice(slice=(1, 14, 4))
    assert compact_ranks([0, 1, 2, 4], 16) == [0, 1, 2, 4]
    assert compact_ranks([3, 7], 8) == [3, 7]


def table(*names_and_descriptions: tuple[str, str]) -> tuple[GroupTable, list[object]]:
    groups, handles = GroupTable(), []
    for name, desc in names_and_descriptions:
        handles.append(object())
        groups._add(handles[-1], name, desc, "gloo", "world")
    return groups, handles


def test_a_mesh_dimension_says_what_its_group_is_for() -> None:
    groups, handles = table(("0", "default_pg"), ("1", "mesh_tp"), ("2", "mesh_dp_shard"), ("3", "mesh_banana"))

    groups.set_parallelism(handles[0], "dp")
    groups.set_parallelism(handles[1], "dp")

    assert [group.parallelism for group in groups.groups] == ["dp", "tp", "dp", None]


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 7,
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[8, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[8, 2]],
        "time_created_ns": 150,
        "is_p2p": False,
    } | changes


def test_collectives_of_the_window_are_kept_in_order_of_creation() -> None:
    groups, _ = table(("0", "default_pg"))
    entries = [
        entry(collective_seq_id=9, time_created_ns=190),
        entry(),
        entry(time_created_ns=99),
        entry(time_created_ns=200),
        entry(process_group=["5", "destroyed"]),
        entry(is_p2p=True),
    ]

    records = flight_records(entries, groups, start_ns=100, end_ns=200)

    assert [(record.seq, record.created_ns) for record in records if record.group >= 0] == [(7, 150), (9, 190)]
    assert [record.group for record in records] == [0, -1, 0]  # one of a group that is no more
    assert (records[0].group, records[0].kind, records[0].in_shapes) == (0, "all_reduce", [[8, 2]])


def test_groups_of_the_same_description_and_ranks_are_told_apart() -> None:
    groups, handles = table(("0", "default_pg"), ("1", "mesh_tp"), ("2", "mesh_tp"), ("3", "mesh_tp"))

    assert [group.desc for group in groups.groups] == ["default_pg", "mesh_tp", "mesh_tp#2", "mesh_tp#3"]
    assert [group.parallelism for group in groups.groups] == [None, "tp", "tp", "tp"]
    assert groups.id_of(handles[2]) == 2
    assert groups.id_of(SimpleNamespace(group_name="3")) == 3  # another wrapper of the same group
