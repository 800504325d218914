"""Entries of torch's flight recorders as records of collectives."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.capture.job.groups import GroupTable
from tracekit.capture.recording import (
    collective_records,
    flight_recorder_dump,
    flight_recorder_is_on,
    missing_collectives,
)


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


def test_collectives_of_the_window_are_returned_in_order_of_creation() -> None:
    groups = GroupTable()
    groups._add(object(), "0", "default_pg", "gloo", "world")
    entries = [
        entry(collective_seq_id=9, time_created_ns=190),
        entry(),
        entry(time_created_ns=99),
        entry(time_created_ns=200),
        entry(process_group=["5", "destroyed"]),
        entry(is_p2p=True),
    ]

    records = collective_records(entries, groups, start_ns=100, end_ns=200)

    assert [(record.seq, record.created_ns) for record in records if record.group >= 0] == [(7, 150), (9, 190)]
    assert [record.group for record in records] == [0, -1, 0]  # -1: a group that no longer exists
    assert (records[0].group, records[0].kind, records[0].in_shapes) == (0, "all_reduce", [[8, 2]])


def recorders(monkeypatch: pytest.MonkeyPatch, **dumps: dict[str, Any]) -> None:
    """Pretend that torch has these flight recorders: `cpu` for Gloo and others, `nccl` for NCCL."""
    names = {"cpu": "_dump_fr_trace_json", "nccl": "_dump_nccl_trace_json"}
    bindings = SimpleNamespace(**{names[kind]: lambda dump=dump: json.dumps(dump) for kind, dump in dumps.items()})
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=bindings)))  # type: ignore[arg-type]


OFF = {"version": "2.10", "entries": [], "pg_config": {}}
GROUPS = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


@pytest.mark.parametrize(
    ("dumps", "on"),
    [
        ({}, False),  # a torch without flight recorders
        ({"cpu": OFF, "nccl": OFF}, False),
        ({"cpu": {}}, False),
        ({"cpu": OFF | {"pg_config": GROUPS}}, True),  # on, before the first collective
        ({"cpu": OFF, "nccl": OFF | {"pg_config": GROUPS}}, True),
    ],
)
def test_a_flight_recorder_is_on_if_it_lists_groups(
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


def one_group() -> GroupTable:
    groups = GroupTable()
    groups._add(object(), "0", "default_pg", "gloo", "world")
    return groups


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], "the flight recorder is off"),
        ([entry(record_id=0, time_created_ns=300)], None),  # it has lost none
        ([entry(record_id=7, time_created_ns=300), entry(record_id=8, time_created_ns=310)], "lost the window's first"),
        ([entry(record_id=7, time_created_ns=100), entry(record_id=8, time_created_ns=300)], None),
    ],
)
def test_it_says_why_collectives_of_the_window_are_missing(
    monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, Any]], expected: str | None
) -> None:
    recorders(monkeypatch, cpu=OFF)
    reason = missing_collectives(entries, one_group(), start_ns=200)
    assert (reason is None) if expected is None else (reason is not None and expected in reason)


def test_a_torch_without_a_recorder_of_gloo_names_the_variable_of_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    recorders(monkeypatch, nccl=OFF)
    reason = missing_collectives([], one_group(), start_ns=200)
    assert reason is not None
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in reason
    assert "TORCH_FR_BUFFER_SIZE" not in reason


def test_without_groups_no_collectives_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    recorders(monkeypatch, cpu=OFF)
    assert missing_collectives([], GroupTable(), start_ns=0) is None


# As ProcessGroupNCCL names what it records (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp).
@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        ("nccl:all_reduce", "all_reduce"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"),
        ("nccl:reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:all_gather_into_tensor_coalesced", "all_gather"),
        ("nccl:_broadcast_oop", "broadcast"),
        ("nccl:_reduce_oop", "reduce"),
        ("nccl:all_to_all", "all_to_all"),
        ("gloo:reduce_scatter", "reduce_scatter"),
        ("gloo:all_to_all", "all_to_all"),
        ("nccl:coalesced", "unknown"),
    ],
)
def test_a_collective_has_one_kind_by_whatever_name_a_backend_records_it(recorded: str, kind: str) -> None:
    groups = GroupTable()
    groups._add(object(), "0", "default_pg", "nccl", "world")

    (record,) = collective_records([entry(profiling_name=recorded)], groups, start_ns=100, end_ns=200)

    assert record.kind == kind
