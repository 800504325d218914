"""Tables with usual names of columns and kinds, what is derived where they leave something out, and their errors."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.unit.analysis.operation_tables.simulated import simulate
from tracekit.analysis.operation_tables.formats.plain import read_plain_table
from tracekit.analysis.operation_tables.operations import KINDS, Operations
from tracekit.errors import InputError

ROWS = [
    ("0", "0", "forward", "0", "10"),
    ("1", "0", "fwd", "11", "21"),
    ("1", "0", "Backward-Compute", "21", "41"),
    ("0", "0", "B", "42", "62"),
]
PLAIN = pd.DataFrame(ROWS, columns=["rank", "micro-batch", "kind", "start_ms", "end_ms"])


def read(table: pd.DataFrame, unit: str | None = None) -> Operations:
    return read_plain_table(table, "ops.csv", unit=unit).operations


def kinds(operations: Operations) -> list[str]:
    return [KINDS[kind] for kind in operations.kind.tolist()]


def test_stages_follow_from_ranks_and_kinds_from_usual_names() -> None:
    operations = read(PLAIN)
    assert operations.rank.tolist() == operations.stage.tolist() == [0, 0, 1, 1]
    assert kinds(operations) == ["F", "B", "F", "B"]
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
    table = read_plain_table(PLAIN.rename(columns={"start_ms": "start", "end_ms": "end"}), "ops.csv")
    assert table.operations.end_ns.max() == 62_000_000_000
    assert "times are taken as seconds" in table.notes[0]
    assert read_plain_table(PLAIN, "ops.csv").notes == ()


def test_steps_follow_from_repetition_and_microbatches_count_from_0() -> None:
    """GIVEN a table without steps, whose microbatches count from 1 THEN each rank's repetition begins a step."""
    full = simulate(steps=3, microbatches=4, replicas=2)
    bare = full.drop(columns=["step", "dp_rank"])
    bare["microbatch"] = [str(int(number) + 1) if number else "" for number in bare["microbatch"]]
    assert read(bare) == read(full)
    assert read_plain_table(bare, "ops.csv").notes == ("microbatches are numbered from 0 in each step",)


def test_stages_of_a_rank_follow_from_its_chunks() -> None:
    full = simulate(schedule="interleaved1f1b", virtual_stages=2, steps=2, tail=False)
    chunked = full.assign(model_chunk=(full["stage"].astype(int) // 4).astype(str)).drop(columns="stage")
    assert read(chunked) == read(full)


def test_times_that_begin_anew_in_each_step_are_put_one_after_another() -> None:
    full = simulate(steps=3)
    begins = full.groupby("step")["start_ns"].transform(lambda values: values.astype("int64").min()).astype("int64")
    anew = full.assign(**{name: (full[name].astype("int64") - begins).astype(str) for name in ("start_ns", "end_ns")})
    lengths = read(full).end_ns - read(full).start_ns
    assert (read(anew).end_ns - read(anew).start_ns).tolist() == lengths.tolist()
    of_rank = read(anew).rows(read(anew).rank == 0)
    assert (of_rank.start_ns[1:] >= of_rank.end_ns[:-1]).all()


def test_a_backward_beside_that_of_the_weights_is_that_of_the_inputs() -> None:
    split = pd.concat([PLAIN, pd.DataFrame([("1", "0", "W", "62", "70")], columns=PLAIN.columns)])
    assert kinds(read(split.reset_index(drop=True))) == ["F", "B", "F", "I", "W"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "forwards"}, r"ops\.csv: line 3: unknown kind 'forwards' \(the kinds are F, B, I, W, "),
        ({"start_ms": "soon"}, r"line 3, column start_ms: 'soon' is not a number"),
        ({"end_ms": ""}, r"line 3, column end_ms: the field is empty"),
        ({"end_ms": "5"}, r"line 3: the operation ends before it starts"),
        ({"micro-batch": ""}, r"line 3: a forward without microbatch"),
        ({"rank": "1.5"}, r"line 3, column rank: 1.5 is not an integer"),
        ({"rank": "-1"}, r"line 3: it names no rank"),
        ({"start_ms": "1e18"}, r"line 3, column start_ms: 1e18 ms is beyond"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_by_its_line(change: dict[str, str], message: str) -> None:
    table = PLAIN.copy()
    for column, value in change.items():
        table.loc[1, column] = value
    with pytest.raises(InputError, match=message) as refused:
        read(table)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("column", ["rank", "micro-batch", "kind", "start_ms", "end_ms"])
def test_a_missing_column_is_named_with_what_to_write(column: str) -> None:
    name = {"micro-batch": "microbatch"}.get(column, column.removesuffix("_ms"))
    with pytest.raises(InputError, match=rf"ops\.csv: no column {name} \(it has .*; write rank, kind, microbatch, "):
        read(PLAIN.drop(columns=column))
