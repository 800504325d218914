"""Process groups and flight-recorder entries as records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tracekit.capture.groups import GroupTable, compact_ranks, describe_mesh, flight_records
from tracekit.model.metadata import Mesh, RankSlice


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

    assert [(record.seq, record.created_ns) for record in records] == [(7, 150), (9, 190)]
    assert (records[0].group, records[0].kind, records[0].in_shapes) == (0, "all_reduce", [[8, 2]])


def test_the_mesh_with_the_most_dimensions_is_the_run_s() -> None:
    def mesh(names: tuple[str, ...] | None, shape: tuple[int, ...], coordinate: list[int] | None) -> SimpleNamespace:
        return SimpleNamespace(mesh_dim_names=names, shape=shape, ndim=len(shape), get_coordinate=lambda: coordinate)

    meshes = [
        mesh(("tp",), (2,), [1]),
        mesh(("dp", "tp"), (4, 2), [3, 1]),
        mesh(None, (2, 2, 2), [0, 0, 0]),
        mesh(("a", "b", "c"), (1, 2, 2), None),
    ]

    assert describe_mesh(meshes) == Mesh(names=["dp", "tp"], shape=[4, 2], coordinate=[3, 1])
    assert describe_mesh([]) is None
