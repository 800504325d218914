"""Tables with usual names of columns and kinds, what is derived where they leave something out, and their errors."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.components import require_module
from tests.places import ROOT
from tests.unit.optables.simulated import simulate
from tracekit.errors import InputError
from tracekit.optables.operation_table import (
    COLUMN_NAMES,
    KIND_NAMES,
    KINDS,
    TableColumns,
    read_frame,
    read_table,
)

ROWS = [
    ("0", "0", "forward", "0", "10"),
    ("1", "0", "fwd", "11", "21"),
    ("1", "0", "Backward-Compute", "21", "41"),
    ("0", "0", "B", "42", "62"),
]
PLAIN = pd.DataFrame(ROWS, columns=["rank", "micro-batch", "kind", "start_ms", "end_ms"])


def read(table: pd.DataFrame, unit: str | None = None) -> pd.DataFrame:
    return read_table(table, "ops.csv", unit=unit).operations


def test_stages_follow_from_ranks_and_kinds_from_usual_names() -> None:
    operations = read(PLAIN)
    assert operations["rank"].tolist() == operations.stage.tolist() == [0, 0, 1, 1]
    assert operations["kind"].tolist() == ["F", "B", "F", "B"]
    assert operations.start_ns.tolist() == [0, 42_000_000, 11_000_000, 21_000_000]
    assert set(operations.replica.tolist()) == set(operations.step.tolist()) == {0}


@pytest.mark.parametrize(
    ("renamed", "unit", "scale"),
    [
        ({"start_ms": "start_us", "end_ms": "end_us"}, None, 1_000),
        ({"start_ms": "begin_s", "end_ms": "stop_s"}, None, 1_000_000_000),
        ({"start_ms": "start", "end_ms": "end"}, "ns", 1),
        ({"start_ms": "ts", "end_ms": "dur"}, "us", 1_000),
    ],
)
def test_units_of_times(renamed: dict[str, str], unit: str | None, scale: int) -> None:
    operations = read(PLAIN.rename(columns=renamed), unit)
    assert operations.start_ns.max() == 42 * scale
    last = 62 * scale if "dur" not in renamed.values() else (42 + 62) * scale
    assert operations.end_ns.max() == last


def test_a_unit_that_nobody_names_is_seconds_with_a_note() -> None:
    table = read_table(PLAIN.rename(columns={"start_ms": "start", "end_ms": "end"}), "ops.csv")
    assert table.operations.end_ns.max() == 62_000_000_000
    assert "times are taken as seconds" in table.notes[0]
    assert read_table(PLAIN, "ops.csv").notes == ()


def test_steps_follow_from_repetition_and_microbatches_count_from_0() -> None:
    """GIVEN a table without steps, whose microbatches count from 1 THEN each rank's repetition begins a step."""
    full = simulate(steps=3, microbatches=4, replicas=2)
    bare = full.drop(columns=["step", "dp_rank"])
    bare["microbatch"] = [str(int(number) + 1) if number else "" for number in bare["microbatch"]]
    pd.testing.assert_frame_equal(read(bare), read(full), check_like=True)
    assert read_table(bare, "ops.csv").notes == ("microbatches are numbered from 0 in each step",)


def test_stages_of_a_rank_follow_from_its_chunks() -> None:
    full = simulate(schedule="interleaved1f1b", virtual_stages=2, steps=2, tail=False)
    chunked = full.assign(model_chunk=(full["stage"].astype(int) // 4).astype(str)).drop(columns="stage")
    pd.testing.assert_frame_equal(read(chunked), read(full), check_like=True)


def test_times_that_begin_anew_in_each_step_are_put_one_after_another() -> None:
    full = simulate(steps=3)
    begins = full.groupby("step")["start_ns"].transform(lambda values: values.astype("int64").min()).astype("int64")
    anew = full.assign(**{name: (full[name].astype("int64") - begins).astype(str) for name in ("start_ns", "end_ns")})
    lengths = read(full).end_ns - read(full).start_ns
    assert (read(anew).end_ns - read(anew).start_ns).tolist() == lengths.tolist()
    of_rank = read(anew).query("rank == 0")
    assert (of_rank["start_ns"].to_numpy()[1:] >= of_rank["end_ns"].to_numpy()[:-1]).all()


def test_a_backward_beside_that_of_the_weights_is_that_of_the_inputs() -> None:
    split = pd.concat([PLAIN, pd.DataFrame([("1", "0", "W", "62", "70")], columns=PLAIN.columns)])
    assert read(split.reset_index(drop=True))["kind"].tolist() == ["F", "B", "F", "I", "W"]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("kind", "forwards", "'forwards' is no kind; the kinds are F, B, I, W, "),
        ("start_ms", "soon", "'soon' is not a time"),
        ("end_ms", "", "'' is not a time"),
        ("end_ms", "5", "'5' ends before it starts"),
        ("micro-batch", "", "'' is no microbatch"),
        ("rank", "1.5", "'1.5' is not a whole number"),
        ("rank", "-1", "'-1' is no rank"),
        ("start_ms", "1e18", "'1e18' is not a time in range"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_by_its_line(column: str, value: str, message: str) -> None:
    table = PLAIN.copy()
    table.loc[1, column] = value
    with pytest.raises(InputError, match=f"^ops.csv: line 3, column {column}: {message}"):
        read(table)


@pytest.mark.parametrize("column", ["rank", "micro-batch", "kind", "start_ms", "end_ms"])
def test_a_missing_column_is_named_with_what_to_write(column: str) -> None:
    name = {"micro-batch": "microbatch"}.get(column, column.removesuffix("_ms"))
    with pytest.raises(InputError, match=rf"ops\.csv: no column {name} \(it has .*; write rank, kind, microbatch, "):
        read(PLAIN.drop(columns=column))


def test_every_digit_of_a_time_counts() -> None:
    """Seconds since 1970 with nanoseconds have 19 digits, of which a float keeps 16."""
    frame = pd.DataFrame({"start_s": ["1700000000.123456789", "-0.5", ".25", "1e-3"], "end_ms": [1.5, 2.25, 0, 1]})
    columns = TableColumns(frame, "ops.csv")
    assert columns.nanoseconds("start").tolist() == [1_700_000_000_123_456_789, -500_000_000, 250_000_000, 1_000_000]
    assert columns.nanoseconds("end").tolist() == [1_500_000, 2_250_000, 0, 1_000_000]


TEXT = "rank,stage,step,microbatch,kind,start_ms,end_ms\n0,0,0,0,F,0,10\n1,1,0,0,F,10.8,21\n"


@pytest.mark.parametrize("name", ["ops.csv", "ops.csv.gz", "ops.tsv", "ops.parquet"])
def test_files_of_each_form_are_the_same(name: str, tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text(TEXT)
    expected = read_frame(tmp_path / "plain.csv")
    if name.endswith(".parquet"):
        require_module("pyarrow")
        expected.to_parquet(tmp_path / name)
    else:
        expected.to_csv(tmp_path / name, index=False, sep="\t" if name.endswith(".tsv") else ",")
    assert read(read_frame(tmp_path / name)).equals(read(expected))


@pytest.mark.parametrize("content", [b"", TEXT.encode("utf-16"), b'0,"x', TEXT.encode() + b"0,0,0,1,F,62,63,64\n"])
def test_a_file_that_is_no_table_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"ops\.csv: (it cannot be read|no operations)"):
        read_frame(tmp_path / "ops.csv")


def test_a_table_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ops.csv").write_text(TEXT)
    monkeypatch.setenv("TRACEKIT_LIMITS", "table_operations=1")
    with pytest.raises(InputError, match=r"over 1 operations \(limit table_operations=1\)"):
        read_frame(tmp_path / "ops.csv")


PAGE = (ROOT / "docs" / "operation-tables.md").read_text()


def test_the_page_has_every_name_of_a_column_and_every_kind() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    documented = {name: tuple(re.findall(r"`(\w+)`", names)) for name, _, _, names, _ in rows}
    assert documented == {name: names for name, names in COLUMN_NAMES.items() if name != "duration"}
    section = PAGE.split("## Kinds")[1].split("\n## ")[0]
    assert set(KINDS) <= set(re.findall(r"`([\w-]+)`", section))
    assert set(KIND_NAMES) == set(KINDS)
    known = {name for kind, names in KIND_NAMES.items() for name in (kind.lower(), *names.split())}
    named = {name.lower() for name in re.findall(r"`([\w-]+)`", section)}
    assert {name.replace("-", "_") for name in named - known} - known <= {"stage", "microbatch"}


def test_no_name_stands_for_two_kinds_or_columns() -> None:
    for names in ([*map(str.split, KIND_NAMES.values())], [*COLUMN_NAMES.values()]):
        every = [name for of_one in names for name in of_one]
        assert len(every) == len(set(every))
