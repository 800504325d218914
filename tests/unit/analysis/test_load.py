"""From files to a run and a report: missing and broken ranks, windows, common steps, findings, JSON, terminal."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.analysis.load import load
from tracekit.analysis.per_rank.options import StepSelection, SummaryOptions
from tracekit.analysis.report import analyze
from tracekit.analysis.sections import TABLES
from tracekit.errors import InputError, UsageError
from tracekit.model.metadata import Bucket, DdpModule, Group
from tracekit.render.json_result import JsonResult, result_dict
from tracekit.render.terminal import TerminalReport


def gpu_rank(rank: int, world_size: int = 4, *, compute_us: float = 50, steps: range = range(3)) -> TraceBuilder:
    """Steps of 100 us: compute for `compute_us`, then an all-reduce that ends at 100 on every rank."""
    trace = TraceBuilder(rank, world_size)
    for k in steps:
        begin = 100 * k
        trace.step(k, begin, 100).kernel("gemm", begin, compute_us, launched_at=begin)
        trace.nccl("all_reduce", begin + compute_us, 100 - compute_us, launched_at=begin + 1)
    return trace


def result(folder: Path, **how: Any) -> dict[str, Any]:
    return result_dict(analyze(load(folder, **how)))


# ---- ranks -------------------------------------------------------------------------------------------------------


def test_all_ranks(tmp_path: Path) -> None:
    actual = result(write_run(tmp_path, [gpu_rank(rank) for rank in range(4)]))
    assert actual["run"]["ranks"] == [0, 1, 2, 3]
    assert (actual["run"]["world_size"], actual["run"]["missing_ranks"], actual["run"]["device"]) == (4, [], "gpu")
    assert actual["notes"] == []
    assert actual["ranks"] == [
        {
            "rank": rank,
            "steps": 3,
            "step_ns": 300_000,
            "compute_ns": 150_000,
            "comm_ns": 150_000,
            "overlapped_comm_ns": 0,
            "exposed_comm_ns": 150_000,
            "exposed_copy_ns": 0,
            "idle_ns": 0,
            "overlap_ratio": 0.0,
        }
        for rank in range(4)
    ]
    assert len(actual["steps"]) == 12
    assert {(row["kind"], row["count"], row["total_ns"], row["group"]) for row in actual["communication"]} == {
        ("all_reduce", 3, 150_000, 0)
    }
    assert [group["ranks"] for group in actual["groups"]] == ["world"]


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _not_json(path: Path) -> None:
    path.write_bytes(b"hello")


def _cut_in_the_header(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:60]))


def _no_gzip_body(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:12])


def _removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("broken", [0, 2, 3])
@pytest.mark.parametrize("damage", [_emptied, _not_json, _cut_in_the_header, _no_gzip_body, _removed])
def test_a_broken_rank_loses_no_other(tmp_path: Path, damage: Any, broken: int) -> None:
    folder = write_run(tmp_path, [gpu_rank(rank) for rank in range(4)])
    damage(folder / f"rank{broken}.json.gz")
    actual = result(folder)
    assert actual["run"]["ranks"] == [rank for rank in range(4) if rank != broken]
    assert actual["run"]["missing_ranks"] == [broken]
    kinds = {note["kind"] for note in actual["notes"]}
    assert "missing_rank" in kinds
    if damage is not _removed:
        (note,) = [note for note in actual["notes"] if note["file"] == f"rank{broken}.json.gz"]
        assert note["severity"] in {"warning", "error"}
    report = TerminalReport(width=100).render(analyze(load(folder)))
    assert "3 of 4 ranks" in report.splitlines()[1]
    assert f"missing: {broken}" in report


def test_the_complete_steps_of_a_cut_off_rank_are_used(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [gpu_rank(rank) for rank in range(2)])
    text = gzip.decompress((folder / "rank1.json.gz").read_bytes())
    (folder / "rank1.json.gz").write_bytes(gzip.compress(text[: text.index(b'"ProfilerStep#2"') + 200]))
    actual = result(folder)
    assert [row["steps"] for row in actual["ranks"]] == [3, 2]
    assert [(row["step"], row["complete"]) for row in actual["steps"] if row["rank"] == 1] == [
        (0, True),
        (1, True),
        (2, False),
    ]
    assert {note["kind"]: note["events_dropped"] for note in actual["notes"]} == {
        "truncated": 1, "step_mismatch": 0, "missing_rank": 0,
    }  # fmt: skip
    assert all(
        note["text"].startswith("rank 1: rank1.json.gz: ") for note in actual["notes"] if note["kind"] == "truncated"
    )


def test_no_rank_usable(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [gpu_rank(0, 1)])
    text = gzip.decompress((folder / "rank0.json.gz").read_bytes())
    (folder / "rank0.json.gz").write_bytes(gzip.compress(text[:60]))
    with pytest.raises(InputError) as caught:
        load(folder)
    assert "rank0.json.gz" in caught.value.message


def test_two_files_of_one_rank(tmp_path: Path) -> None:
    """GIVEN two files that both name rank 1, behind their events THEN one is used and the other reported."""
    for name in ("a.json", "b.json"):
        gpu_rank(1).write(tmp_path / name, tail=True)
    actual = result(tmp_path)
    assert actual["run"]["ranks"] == [1]
    assert "duplicate_rank" in {note["kind"] for note in actual["notes"]}


def test_the_rank_in_the_file_takes_precedence_over_its_name(tmp_path: Path) -> None:
    gpu_rank(2).write(tmp_path / "rank0.json", tail=True)
    actual = result(tmp_path)
    assert actual["run"]["ranks"] == [2]
    assert "rank_mismatch" in {note["kind"] for note in actual["notes"]}


def test_selected_ranks_are_not_missing(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [gpu_rank(rank) for rank in (0, 1, 3)])
    actual = result(folder, ranks=[1, 2])
    assert actual["run"]["ranks"] == [1]
    assert actual["run"]["selected_ranks"] == [1, 2]
    assert actual["run"]["missing_ranks"] == [2]
    with pytest.raises((InputError, UsageError)) as caught:
        load(folder, ranks=[2])
    assert "0-1,3" in caught.value.hint


def test_selected_steps(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [gpu_rank(rank, 2) for rank in range(2)])
    actual = result(folder, options=SummaryOptions(steps=StepSelection(first=1)))
    assert [row["steps"] for row in actual["ranks"]] == [2, 2]
    with pytest.raises((InputError, UsageError)) as caught:
        load(folder, options=SummaryOptions(steps=StepSelection(first=7)))
    assert "0-2" in caught.value.hint


def test_an_absurd_world_size_is_rejected(tmp_path: Path) -> None:
    trace = gpu_rank(0)
    trace.header["distributedInfo"]["world_size"] = 10**12
    trace.write(tmp_path / "rank0.json")
    assert result(tmp_path)["run"]["world_size"] is None


# ---- windows of a rank -------------------------------------------------------------------------------------------


def test_windows_of_a_rank_are_added_up(tmp_path: Path) -> None:
    for first in (0, 10):
        for rank in (0, 1):
            gpu_rank(rank, 2, steps=range(first, first + 2)).write(tmp_path / f"node0_{rank}.{first}.pt.trace.json")
    actual = result(tmp_path)
    assert [(row["rank"], row["steps"], row["compute_ns"]) for row in actual["ranks"]] == [
        (0, 4, 200_000),
        (1, 4, 200_000),
    ]
    assert [row["step"] for row in actual["steps"] if row["rank"] == 0] == [0, 1, 10, 11]
    assert [row["count"] for row in actual["communication"]] == [4, 4]
    assert actual["run"]["other_runs"] == []


def test_windows_may_show_different_groups(tmp_path: Path) -> None:
    """GIVEN a second window with collectives of a group that the first one lacks THEN both are in the table."""
    for first, description in ((0, "mesh_dp"), (10, "mesh_tp")):
        trace = TraceBuilder(0, 2).step(first, first * 100, 100).kernel("k", first * 100, 5, launched_at=first * 100)
        trace.nccl("all_reduce", first * 100 + 10, 10, launched_at=first * 100 + 1, description=description)
        trace.write(tmp_path / f"node0_1.{first}.pt.trace.json")
    actual = result(tmp_path)
    names = {group["id"]: group["desc"] for group in actual["groups"]}
    assert sorted(names[row["group"]] for row in actual["communication"]) == ["mesh_dp", "mesh_tp"]


# ---- findings ----------------------------------------------------------------------------------------------------


def test_a_slow_rank_is_named_with_its_excess(tmp_path: Path) -> None:
    """GIVEN rank 2 with 80 us of compute, where its peers have 50 THEN it is blamed for 30 us a step, 60 %."""
    actual = result(write_run(tmp_path, [gpu_rank(rank, compute_us=80 if rank == 2 else 50) for rank in range(4)]))
    (finding,) = [finding for finding in actual["findings"] if finding["rank"] is not None]
    assert finding["rank"] == 2
    assert finding["severity"] == "warning"
    assert finding["evidence"]["excess_ns"] == 30_000
    assert finding["evidence"]["noise_ns"] < 2_000  # a usual noise is assumed where there is none
    assert finding["evidence"]["peers_compute_ns"] == 50_000
    assert "60%" in finding["text"]


@pytest.mark.parametrize(
    ("compute_us", "named"),
    [
        ((80, 70, 90), True),  # 30 us longer, with a scatter of 10
        ((60, 140, 60), False),  # 37 us longer on average, with a scatter of 46
        ((45, 90, 90), False),  # it was once the faster one
        ((80,), False),  # one step shows no scatter
    ],
)
def test_a_slow_rank_is_named_only_beyond_the_noise(tmp_path: Path, compute_us: tuple[int, ...], named: bool) -> None:
    """GIVEN rank 1 that computes this long in its steps, where rank 0 computes 50 us."""
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=2)
        for k, slow_us in enumerate(compute_us):
            duration_us, begin_us = (slow_us if rank else 50), 200 * k
            trace.step(k, begin_us, 200).kernel("gemm", begin_us, duration_us, launched_at=begin_us)
            trace.nccl("all_reduce", begin_us + duration_us, 160 - duration_us, launched_at=begin_us + 1)
        traces.append(trace)
    blamed = [
        finding["rank"]
        for finding in result(write_run(tmp_path, traces))["findings"]
        if "noise_ns" in finding["evidence"]
    ]
    assert blamed == ([1] if named else [])


def test_no_rank_is_named_when_all_are_similar(tmp_path: Path) -> None:
    actual = result(write_run(tmp_path, [gpu_rank(rank, compute_us=50 + rank) for rank in range(4)]))
    assert all(finding["rank"] is None for finding in actual["findings"])


def test_only_common_steps_are_compared(tmp_path: Path) -> None:
    """GIVEN a rank that is slow in a step that the others lack THEN it is not blamed."""
    slow_rank = gpu_rank(0, 2, steps=range(2))
    for k in (2, 3, 4):
        slow_rank.step(k, 100 * k, 100).kernel("gemm", 100 * k, 95, launched_at=100 * k)
        slow_rank.nccl("all_reduce", 100 * k + 95, 5, launched_at=100 * k + 1)
    actual = result(write_run(tmp_path, [slow_rank, gpu_rank(1, 2, steps=range(2))]))
    assert all(finding["rank"] is None for finding in actual["findings"])
    assert [note["kind"] for note in actual["notes"]] == ["step_mismatch"]


def test_transfers_that_nothing_hides_are_a_finding(tmp_path: Path) -> None:
    """GIVEN ranks that compute for 50 us of a step of 100 us and transfer for the rest."""
    actual = result(write_run(tmp_path, [gpu_rank(rank) for rank in range(4)]))
    (finding,) = actual["findings"]
    evidence = finding["evidence"]
    assert (finding["cause"], finding["time_ns"], evidence["transfer_ns"]) == ("transfer", 50_000, 50_000)
    assert (evidence["kind"], finding["ranks"]) == ("all_reduce", [])


def test_exposed_communication_is_a_finding_on_a_rank_alone(tmp_path: Path) -> None:
    """Then waiting for the others cannot be told from transfers."""
    actual = result(write_run(tmp_path, [gpu_rank(0)]))
    (finding,) = actual["findings"]
    evidence = finding["evidence"]
    assert (finding["cause"], finding["time_ns"]) == ("communication", 50_000)
    assert (evidence["exposed_share"], evidence["kind"], evidence["exposed_ns"]) == (0.5, "all_reduce", 150_000)
    assert finding["action"].startswith("record all ranks")


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
    text = JsonResult().render(analyze(load(tmp_path)))
    actual = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    columns = {table.name: {column.name for column in table.columns} for table in TABLES}
    for name in ("ranks", "steps", "communication", "bucket_map"):
        assert actual[name], name
        assert all(set(row) == columns[name] for row in actual[name])
    assert all(set(row) == columns["clock"] for row in actual["clock"]["ranks"])
    assert actual["bucket_map"][0]["parameters"] == ["a.weight"]
    assert actual["run"]["run_id"] == "run-1"
    assert actual["run"]["strategies"] == ["ddp"]
    assert actual["run"]["capture_overhead_ratio"] == 0.01
    assert [(row["method"], row["offset_ns"]) for row in actual["clock"]["ranks"]] == [("probe", 0), ("probe", 5000)]
    assert text == json.dumps(actual, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def test_no_communication_has_no_ratio(tmp_path: Path) -> None:
    TraceBuilder(0, 1).step(0, 0, 10).kernel("k", 1, 2, launched_at=0).write(tmp_path / "rank0.json")
    actual = result(tmp_path)
    assert actual["ranks"][0]["overlap_ratio"] is None
    assert actual["communication"] == []
    assert "n/a" in TerminalReport().render(analyze(load(tmp_path)))


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
    report = TerminalReport(width=200, color=False).render(analyze(load(folder)))
    assert not set(report) & set("\x1b\x07\x9b\u202e\u2066")
    assert "[bold]x[/bold] \\x1b[31mred\\x07\\u202eevil\\u2066 :smile: \\x9b1m <b>" in report
    colored = TerminalReport(width=200, color=True).render(analyze(load(folder)))
    assert "\x1b[31mred" not in colored
    assert "\x1b[2J" not in colored


def test_the_verdict_comes_first_and_the_next_command_last(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [gpu_rank(rank, compute_us=80 if rank == 2 else 50) for rank in range(4)])
    lines = TerminalReport(width=300).render(analyze(load(folder))).splitlines()
    assert lines[1:3] == ["4 of 4 ranks · GPU", "3 steps of 0.100 ms (median; 0.100 to 0.100)"]
    assert "rank 2 computes" in lines[4]
    assert lines[-1] == f"Next: tracekit merge {folder} -o run.pftrace"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked(tmp_path: Path, width: int) -> None:
    report = TerminalReport(width=width).render(analyze(load(write_run(tmp_path, [gpu_rank(r) for r in range(4)]))))
    assert max(len(line) for line in report.splitlines() if not line.startswith("Next: ")) <= width


def test_the_next_command_is_in_one_piece_and_keeps_the_selection(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "a folder with a name that is far too long for the width", [gpu_rank(r) for r in range(4)]
    )
    report = TerminalReport(width=40).render(analyze(load(folder, ranks=[0, 2])))
    assert shlex.split(report.splitlines()[-1].removeprefix("Next: ")) == [
        "tracekit", "merge", str(folder), "--ranks", "0,2", "-o", "run.pftrace",
    ]  # fmt: skip


def test_tables_of_many_ranks_show_the_slowest_of_them(tmp_path: Path) -> None:
    few, many = (
        load(write_run(tmp_path / str(ranks), [gpu_rank(r, ranks, compute_us=10 + r) for r in range(ranks)]))
        for ranks in (9, 40)
    )
    few_lines, many_lines = (TerminalReport(width=100).render(analyze(run)).splitlines() for run in (few, many))
    assert any("the 8 slowest of 40 ranks" in line for line in many_lines)
    assert len(many_lines) <= len(few_lines) + 2


def test_workers_give_the_same_bytes(tmp_path: Path) -> None:
    """Invariant 9: one process or two; gzip, several gzip members or plain; any layout."""
    texts = set()
    for number, (packing, layout, tail) in enumerate(
        [("gz", "kineto", False), ("plain", "compact", False), ("members", "pretty", True), ("plain", "crlf", True)]
    ):
        folder = tmp_path / str(number)
        for rank in range(2):
            gpu_rank(rank, 4, compute_us=50 + rank).write(
                folder / f"rank{rank}.json", layout, tail=tail, packing=packing
            )
        for jobs in (1, 2) if number == 0 else (1,):
            run = load(folder, jobs=jobs)
            texts.add(JsonResult().render(analyze(run)).replace(str(folder), "FOLDER"))
    assert len(texts) == 1
