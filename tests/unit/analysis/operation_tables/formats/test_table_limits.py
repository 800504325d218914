"""Tables of strangers cannot take the machine: each limit is named before anything of that size is made."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tests.components import require_module
from tests.unit.analysis.operation_tables.simulated import simulate
from tracekit.analysis.operation_tables.diagnosis import diagnose_table
from tracekit.analysis.operation_tables.formats import texts
from tracekit.analysis.operation_tables.formats.plain import read_plain_table
from tracekit.analysis.operation_tables.formats.read_table import read_frame
from tracekit.analysis.operation_tables.formats.table_limits import require_limits
from tracekit.errors import InputError
from tracekit.read.files import inflate

HEADER = "rank,stage,step,microbatch,kind,start_ms,end_ms\n"


def two_stages(rank: int = 1, stage: int = 1) -> str:
    return f"{HEADER}0,0,0,0,F,0,10\n{rank},{stage},0,0,F,10.8,21\n{rank},{stage},0,0,B,21,41.2\n0,0,0,0,B,42,62.1\n"


def written(folder: Path, text: str, name: str = "ops.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("table_operations=71", r"over 71 operations \(limit table_operations=71\)"),
        ("table_ranks=3", r"over 3 ranks \(limit table_ranks=3\)"),
        ("table_stages=3", r"over 3 stages \(limit table_stages=3\)"),
        ("rank_operations=17", r"over 17 operations of one rank in one step \(limit rank_operations=17\)"),
    ],
)
def test_each_limit_of_a_table_is_named(monkeypatch: pytest.MonkeyPatch, limit: str, message: str) -> None:
    """GIVEN 4 ranks with 18 operations each WHEN less is allowed THEN the error names the limit and its option."""
    table = read_plain_table(simulate(steps=1), "ops.csv")
    name, value = limit.split("=")
    exactly = f"{name}={int(value) + 1}"
    monkeypatch.setenv("TRACEKIT_LIMITS", exactly)
    require_limits(table.operations, "ops.csv")
    monkeypatch.setenv("TRACEKIT_LIMITS", limit)
    with pytest.raises(InputError, match=rf"^ops\.csv: {message} \(.* --limit {name}=N\)$"):
        require_limits(table.operations, "ops.csv")


def test_the_text_of_a_table_is_limited_plain_and_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = two_stages() * 100
    plain = written(tmp_path, text)
    packed = tmp_path / "ops.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("TRACEKIT_LIMITS", "table_bytes=1K")
    for path in (plain, packed):
        with pytest.raises(InputError, match=r"over 1,024 bytes of text \(limit table_bytes=1024\)"):
            read_frame(path)
    monkeypatch.setattr(inflate, "_UNCHECKED_BYTES", 1000)
    monkeypatch.setenv("TRACEKIT_LIMITS", "ratio=2")
    with pytest.raises(InputError, match=r"inflates to over 2 times its size \(limit ratio=2\)"):
        read_frame(packed)
    packed.write_bytes(packed.read_bytes()[:60])
    monkeypatch.delenv("TRACEKIT_LIMITS")
    with pytest.raises(InputError, match=r"ops\.csv\.gz: .*copy or pack the file again"):
        read_frame(packed)


def test_reading_stops_at_the_limit_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_LIMITS", "table_operations=3")
    with pytest.raises(InputError, match=r"limit table_operations=3"):
        read_frame(written(tmp_path, two_stages() + '"never read'))


def test_a_parquet_file_is_checked_before_its_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN 72 rows that share one text of 1 MB THEN the rows and the text are what counts, not their product."""
    require_module("pyarrow")
    path = tmp_path / "ops.parquet"
    simulate(steps=1).assign(name="x" * (1 << 20)).to_parquet(path)
    table = read_frame(path)
    assert len(table) == 72
    assert len({id(text) for text in table["name"].tolist()}) == 1
    for limit in ("table_operations=71", "table_bytes=1048575"):
        monkeypatch.setenv("TRACEKIT_LIMITS", limit)
        with pytest.raises(InputError, match=rf"limit {limit}"):
            read_frame(path)


def test_ranks_need_not_follow_one_another_and_stages_must(tmp_path: Path) -> None:
    """GIVEN a rank, then a stage, of number 2,000,000,000 THEN nothing of that size is made."""
    table = read_plain_table(read_frame(written(tmp_path, two_stages(rank=2_000_000_000))), "ops.csv")
    assert diagnose_table(table).ranks == 2
    assert set(diagnose_table(table).whatif.by_rank) == {0, 2_000_000_000}
    table = read_plain_table(read_frame(written(tmp_path, two_stages(stage=2_000_000_000))), "ops.csv")
    with pytest.raises(InputError, match="stage 1 of replica 0 has no forward and no backward"):
        diagnose_table(table)
    with pytest.raises(InputError, match=r"line 3, column rank: 3000000000 is out of range"):
        read_plain_table(read_frame(written(tmp_path, two_stages(rank=3_000_000_000))), "ops.csv")


def test_steps_that_int64_cannot_hold_together() -> None:
    """GIVEN two steps of 3e9 s each whose times overlap THEN they cannot follow one another in ns."""
    operations = read_plain_table(simulate(steps=2), "ops.csv").operations
    longest = replace(operations, start_ns=operations.start_ns * 0, end_ns=operations.start_ns * 0 + 3 * 10**18)
    with pytest.raises(InputError, match=r"its steps take longer than 4e\+09 s together"):
        require_limits(longest, "ops.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (two_stages().encode("utf-16"), r"its text is UTF-16 \(save it as UTF-8\)"),
        (b"\xff\x01" + two_stages().encode(), r"its text is not UTF-8 \(save it as UTF-8\)"),
        (b"", r"the file is empty"),
        (two_stages().replace("stage", "Rank").encode(), r"it has 2 columns rank \(leave one, or rename the others\)"),
        (two_stages().encode() + b'0,"x', r"line 6: a quote is not closed"),
        (two_stages().encode() + b'0,"x"y', r"line 6: a quote is inside a field"),
        (two_stages().encode() + b"1" * 200_000, r"line 6: a field is longer than 131,072 characters"),
        (two_stages().encode() + b"0,0,0,1,F,62,63,64\n", r"row 5 has 8 fields, and the header has 7"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_our_words(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "ops.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"ops\.csv: {message}"):
        read_frame(path)


def test_columns_that_no_operation_has_are_not_read(tmp_path: Path) -> None:
    text = two_stages().replace("end_ms", "end_ms" + ",spare" * 30_000).replace("\n", ",\n")
    table = read_frame(written(tmp_path, text.replace("spare,\n", "spare\n")))
    assert table.columns.tolist() == [*HEADER.strip().split(","), *["spare"] * 5]
    assert table["end_ms"].tolist() == ["10", "21", "41.2", "62.1"]


def test_a_marker_is_found_across_chunks_and_a_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "x" * 995 + "times across ranks (ms):" + "x" * 5000, "a.log")
    monkeypatch.setattr(inflate, "CHUNK_BYTES", 1000)
    assert texts.has_any(path, ("times across ranks (ms):",))
    monkeypatch.setenv("TRACEKIT_LIMITS", "table_bytes=2K")
    with pytest.raises(InputError, match="limit table_bytes=2048"):
        texts.has_any(path, ("none of it",))
