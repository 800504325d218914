"""Traces of MegaScan: files of ranks and joined ones give the same operations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tracekit.analysis.operation_tables.formats.megascan import read_megascan
from tracekit.analysis.operation_tables.formats.read_table import form_of
from tracekit.analysis.operation_tables.operations import KINDS
from tracekit.errors import InputError

US = 1000
# Of each rank: name, microbatch, chunk, start and end in us since the begin of the iteration.
RANKS = {
    0: [
        ("forward", 0, 0, 10, 20),
        ("forward", 0, 1, 50, 60),
        ("backward", 0, 1, 90, 110),
        ("backward", 0, 0, 140, 160),
    ],
    1: [("forward", 0, 0, 25, 45), ("forward", 0, 1, 65, 80), ("backward", 0, 1, 80, 88), ("backward", 0, 0, 115, 135)],
}


def rank_file(place: int) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    for _ in range(2):
        records.append({"name": "iteration", "ph": "B", "pad_before": 5})
        for name, microbatch, chunk, start, end in RANKS[place]:
            records.append({"name": name, "ph": "B", "rel_ts": start * US})
            details = {"microbatch": microbatch, "model_chunk": chunk, "pp_rank": place}
            records.append({**details, "name": name, "ph": "E", "rel_ts": end * US})
        records.append({"name": "iteration", "ph": "E", "rel_ts": 170 * US, "duration_wall": 170 * US})
    return records


def joined() -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    for iteration in range(2):
        for place, rows in RANKS.items():
            for name, microbatch, chunk, start, end in rows:
                where = {"name": name, "pid": place, "tid": 0}
                at = iteration * 175
                events.append({**where, "ph": "B", "ts": start + at, "args": {"iteration": iteration}})
                details = {"iteration": iteration, "microbatch": microbatch, "model_chunk": chunk, "pp_rank": place}
                events.append({**where, "ph": "E", "ts": end + at, "args": details})
    return sorted(events, key=lambda event: event["ts"])  # type: ignore[arg-type,return-value]


def test_files_of_ranks_and_a_joined_trace_have_the_same_operations(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    folder.mkdir()
    for place in RANKS:
        (folder / f"benchmark-data-0-pipeline-{place}-tensor-0.json").write_text(json.dumps(rank_file(place), indent=2))
        (folder / f"benchmark-data-0-pipeline-{place}-tensor-1.json").write_text("[]")
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(joined(), indent=2))
    assert form_of(folder) == form_of(whole) == "megascan"
    of_ranks, of_joined = read_megascan(folder), read_megascan(whole)
    assert "2 files of tensor-parallel ranks left out" in of_ranks.notes[0]
    assert of_ranks.operations.stage.tolist() == of_joined.operations.stage.tolist()
    for table in (of_ranks, of_joined):
        operations = table.operations
        assert len(operations) == 16
        first = operations.rows((operations.step == 0) & (operations.rank == 1))
        assert first.stage.tolist() == [1, 3, 3, 1]
        assert [KINDS[kind] for kind in first.kind.tolist()] == ["F", "F", "B", "B"]
        assert (np.diff(first.start_ns) // US).tolist() == [40, 15, 35]


def test_a_trace_without_forwards_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps([{"name": "iteration", "ph": "B", "pad_before": 0}]))
    with pytest.raises(InputError, match="no forward and no backward"):
        read_megascan(file)
    file.write_text('[{"pad_before": ')
    with pytest.raises(InputError, match="cannot be read"):
        read_megascan(file)


def test_other_files_are_no_traces_of_megascan(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text('{"traceEvents": [{"name": "iteration"}]}')
    assert form_of(file) is None
    assert form_of(tmp_path) is None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("microbatch", 2**70, "microbatch 1180591620717411303424 is out of range"),
        ("rel_ts", 1e300, r"rel_ts 1e\+300 is out of range"),
        ("pp_rank", "x", "pp_rank 'x' is not a number"),
        ("model_chunk", [1], r"model_chunk '\[1\]' is not a number"),
    ],
)
def test_a_number_that_cannot_be_is_named_with_its_file(
    field: str, value: object, message: str, tmp_path: Path
) -> None:
    for place in RANKS:
        records = rank_file(place)
        records[2][field] = value
        (tmp_path / f"benchmark-data-0-pipeline-{place}-tensor-0.json").write_text(json.dumps(records))
    with pytest.raises(InputError, match=rf"benchmark-data-0-pipeline-0-tensor-0\.json: .*{message}"):
        read_megascan(tmp_path)


@pytest.mark.parametrize("place", ["99999999999", "9" * 200])
def test_a_rank_in_the_name_of_a_file_is_in_range(place: str, tmp_path: Path) -> None:
    (tmp_path / f"benchmark-data-0-pipeline-{place}-tensor-0.json").write_text(json.dumps(rank_file(0)))
    with pytest.raises(InputError, match=r"99999999999.* is out of range"):
        read_megascan(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"rel_ts": ' + "9" * 5000 + "}]"])
def test_json_that_python_cannot_read_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"t\.json: it cannot be read as JSON"):
        read_megascan(file)


def test_a_file_of_many_empty_objects_is_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN 10 operations are allowed, of 4 objects at most each WHEN there are 44 objects THEN the limit is named."""
    file = tmp_path / "t.json"
    file.write_text("[" + ",".join(["{}"] * 43) + "]")
    monkeypatch.setenv("TRACEKIT_LIMITS", "table_operations=10")
    with pytest.raises(InputError, match=r"t\.json: over 10 operations \(limit table_operations=10\)"):
        read_megascan(file)
    file.write_text("[" + ",".join(["{}"] * 42) + "]")
    with pytest.raises(InputError, match="no forward and no backward"):
        read_megascan(file)
