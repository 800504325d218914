"""How does a run look in JSON and on a terminal: which columns, which order, how wide, how many rows?"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.explain.gpu_runs import gpu_rank, result
from tracekit.api import analyze
from tracekit.errors import UsageError
from tracekit.explain.sections import TABLES
from tracekit.loading.load import load
from tracekit.model.metadata import Bucket, DdpModule, Group
from tracekit.render.json_result import result_dict, result_json
from tracekit.render.terminal import terminal_text

# ---- JSON --------------------------------------------------------------------------------------------------------


def test_json_has_the_columns_of_the_schema_and_plain_values(tmp_path: Path) -> None:
    bucket = Bucket(index=0, size_bytes=400, dtype="float32", parameters=["a.weight"])
    module = DdpModule(
        module="Net", bucket_cap_bytes=None, static_graph=False, find_unused=False, rebuilt=True, buckets=[bucket]
    )
    for rank in (0, 1):
        group = Group(id=0, name="0", desc="default_pg", backend="gloo", parallelism=None, ranks="world")
        trace = gpu_rank(rank, 2).capture(ddp=[module], groups=[group], clock=[(0, 5000 * rank, 10)])
        trace.write_capture(tmp_path)
    text = result_json(analyze(load(tmp_path)))
    actual = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    columns = {table.name: {column.name for column in table.columns} for table in TABLES}
    for name in ("ranks", "steps", "communication", "bucket_map"):
        assert actual[name], name
        assert all(set(row) == columns[name] for row in actual[name])
    assert all(set(row) == columns["clock"] for row in actual["clock"]["ranks"])
    assert actual["bucket_map"][0]["parameters"] == ["a.weight"]
    assert actual["run"]["run_id"] == "run-1"
    assert actual["run"]["strategies"] == ["ddp"]
    assert actual["run"]["capture_overhead_ratio"] == 0  # the device is never idle
    assert [(row["method"], row["offset_ns"]) for row in actual["clock"]["ranks"]] == [("probe", 0), ("probe", 5000)]
    assert text == json.dumps(actual, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def test_no_communication_has_no_ratio(tmp_path: Path) -> None:
    TraceBuilder(0, 1).step(0, 0, 10).kernel("k", 1, 2, launched_at=0).write(tmp_path / "rank0.json")
    actual = result(tmp_path)
    assert actual["ranks"][0]["overlap_ratio"] is None
    assert actual["communication"] == []
    assert "n/a" in terminal_text(analyze(load(tmp_path)))


def test_sections(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, [gpu_rank(0, 1)]))
    sections = {"ranks", "steps", "communication", "bucket_map"}
    for only, present in (
        (["breakdown"], {"ranks", "steps"}),
        (["overlap"], {"communication"}),
        ([], set()),
        (None, sections),
    ):
        assert sections & set(result_dict(analyze(run, only=only))) == present
    with pytest.raises(UsageError):
        analyze(run, only=["breakdwon"])


# ---- terminal ----------------------------------------------------------------------------------------------------

HOSTILE = "[bold]x[/bold] \x1b[31mred\x07\u202eevil\u2066 :smile: \x9b1m <b>"


def test_control_characters_of_traces_are_escaped(tmp_path: Path) -> None:
    trace = TraceBuilder(0, 2, host=HOSTILE).step(0, 0, 10).kernel("k", 1, 2, launched_at=0)
    trace.nccl("all_reduce", 3, 4, launched_at=1, description=HOSTILE)
    trace.header["deviceProperties"] = [{"name": HOSTILE}]
    folder = tmp_path / "run\x1b[2J[red]"
    trace.write(folder / "rank0.json")
    report = terminal_text(analyze(load(folder)), width=200, color=False)
    assert not set(report) & set("\x1b\x07\x9b\u202e\u2066")
    assert "[bold]x[/bold] \\x1b[31mred\\x07\\u202eevil\\u2066 :smile: \\x9b1m <b>" in report
    colored = terminal_text(analyze(load(folder)), width=200, color=True)
    assert "\x1b[31mred" not in colored
    assert "\x1b[2J" not in colored


def test_the_verdict_comes_first_and_the_next_command_last(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [gpu_rank(rank, compute_us=80 if rank == 2 else 50) for rank in range(4)])
    lines = terminal_text(analyze(load(folder)), width=300).splitlines()
    assert lines[1:3] == ["4 of 4 ranks · GPU", "3 steps of 0.100 ms (median; 0.100 to 0.100)"]
    assert "rank 2 computes" in lines[4]
    assert lines[-1] == f"Next: tracekit merge {folder} -o run.pftrace"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked(tmp_path: Path, width: int) -> None:
    report = terminal_text(analyze(load(write_run(tmp_path, [gpu_rank(r) for r in range(4)]))), width=width)
    assert max(len(line) for line in report.splitlines() if not line.startswith("Next: ")) <= width


def test_the_next_command_is_in_one_piece_and_keeps_the_selection(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "a folder with a name that is far too long for the width", [gpu_rank(r) for r in range(4)]
    )
    report = terminal_text(analyze(load(folder, ranks=[0, 2])), width=40)
    assert shlex.split(report.splitlines()[-1].removeprefix("Next: ")) == [
        "tracekit", "merge", str(folder), "--ranks", "0,2", "-o", "run.pftrace",
    ]  # fmt: skip


def test_tables_of_many_ranks_show_the_slowest_of_them(tmp_path: Path) -> None:
    few, many = (
        load(write_run(tmp_path / str(ranks), [gpu_rank(r, ranks, compute_us=10 + r) for r in range(ranks)]))
        for ranks in (9, 40)
    )
    few_lines, many_lines = (terminal_text(analyze(run), width=100).splitlines() for run in (few, many))
    assert any("8 of 40 rows" in line for line in many_lines)
    assert len(many_lines) <= len(few_lines) + 2
