"""Process groups and flight-recorder entries as records."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.capture.job.groups import (
    GroupTable,
    compact_ranks,
    flight_recorder_dump,
    flight_recorder_is_on,
    flight_records,
)
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


def test_torchs_world_is_not_the_job_where_others_are_in_no_group() -> None:
    groups, _ = table(("0", "default_pg"))
    groups.world_size = 2

    groups.place_in(2)
    assert groups.groups[0].ranks == "world"
    groups.place_in(3)
    assert groups.groups[0].ranks == [0, 1]


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


def recorders(monkeypatch: pytest.MonkeyPatch, **dumps: dict[str, Any]) -> None:
    """A torch that has these flight recorders: `cpu` is that of Gloo and others, `nccl` NCCL's."""
    names = {"cpu": "_dump_fr_trace_json", "nccl": "_dump_nccl_trace_json"}
    bindings = SimpleNamespace(**{names[kind]: lambda dump=dump: json.dumps(dump) for kind, dump in dumps.items()})
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=bindings)))  # type: ignore[arg-type]


OFF = {"version": "2.10", "entries": [], "pg_config": {}}
GROUPS = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


@pytest.mark.parametrize(
    ("dumps", "on"),
    [
        ({}, False),  # a torch without
        ({"cpu": OFF, "nccl": OFF}, False),
        ({"cpu": {}}, False),
        ({"cpu": OFF | {"pg_config": GROUPS}}, True),  # on, before the first collective
        ({"cpu": OFF, "nccl": OFF | {"pg_config": GROUPS}}, True),
    ],
)
def test_a_flight_recorder_that_records_knows_its_groups(
    monkeypatch: pytest.MonkeyPatch, dumps: dict[str, Any], on: bool
) -> None:
    recorders(monkeypatch, **dumps)
    assert flight_recorder_is_on() is on


def test_entries_that_both_recorders_dump_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = entry(op_id=1, time_created_ns=10), entry(op_id=2, time_created_ns=20)
    recorders(monkeypatch, cpu=OFF | {"entries": [one]}, nccl=OFF | {"entries": [one, two]})
    assert [found["op_id"] for found in flight_recorder_dump()] == [1, 2]
    assert flight_recorder_is_on()


def test_without_torch_there_is_no_flight_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert flight_recorder_dump() == []
    assert not flight_recorder_is_on()
