"""Which rank, run and window each file is: names, folders, links, jobs and attempts."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.read.decode.decoders import decode
from tests.unit.read.files.run_traces import trace
from tracekit.errors import InputError, NotATraceError, UsageError
from tracekit.read.files import grouping, identify
from tracekit.read.files.discover import Discovery, discover
from tracekit.read.files.identify import rank_in_name


def without_rank(**where: float) -> TraceBuilder:
    """A trace without `distributedInfo`."""
    builder = trace(at_us=where.get("at_us", 0), pid=int(where.get("pid", 4000)))
    del builder.header["distributedInfo"]
    return builder


def files(found: Discovery) -> dict[int, list[str]]:
    return {rank: [window.path.name for window in windows] for rank, windows in found.chosen.ranks.items()}


def kinds(found: Discovery) -> list[str]:
    return [note.kind for note in found.notes]


# ---- file names of tools -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-000003.json.gz", 3),
        ("rank3_trace.json", 3),  # torchtitan
        ("rank_12.json.gz", 12),
        ("profile_3.json", 3),  # Accelerate
        ("worker7_step_12.1694128201553.pt.trace.json.gz", 7),
        ("trace_rank-5.json", 5),
        ("Rank2.json", 2),
        ("gpu_rank_1_of_8.json", 1),
        ("host_4711.1694128201553.pt.trace.json", None),  # tensorboard_trace_handler: a host and a process
        ("crank3.json", None),
        ("frank_4.json", None),
        ("trace.json", None),
        ("rank.json", None),
        ("rank-123456789.json", None),
        ("rank_x3.json", None),
    ],
)
def test_rank_in_a_name(name: str, rank: int | None) -> None:
    assert rank_in_name(Path("rank9") / name) == rank


@pytest.mark.parametrize(
    "pattern", ["rank{}_trace.json", "profile_{}.json", "rank_{}.json.gz", "w/worker{}.pt.trace.json.gz"]
)
def test_ranks_come_from_names_if_the_files_have_none(tmp_path: Path, pattern: str) -> None:
    for rank in (0, 1, 10):
        without_rank(pid=rank + 1).write(tmp_path / "iteration_10" / pattern.format(rank))
    found = discover([str(tmp_path)])
    assert files(found) == {rank: [Path(pattern.format(rank)).name] for rank in (0, 1, 10)}
    assert found.notes == ()
    assert found.others == ()


def test_the_rank_in_a_file_counts_more_than_its_name(tmp_path: Path) -> None:
    """GIVEN misleading names WHEN discovered THEN only `distributedInfo.rank` counts."""
    for rank, name in [(0, "rank7.json"), (1, "rank0_of_8.json"), (2, "host_1.2.pt.trace.json"), (3, "rank1.json")]:
        trace(rank, 4).write(tmp_path / name, "compact")
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["rank7.json"], 1: ["rank0_of_8.json"], 2: ["host_1.2.pt.trace.json"], 3: ["rank1.json"]}
    assert found.chosen.world_size == 4


def test_files_without_ranks_get_different_ranks(tmp_path: Path) -> None:
    """GIVEN processes without ranks WHEN discovered THEN each gets one, in order of name, with a note."""
    for pid, name in [(7, "b_7.1.pt.trace.json"), (5, "a_5.1.pt.trace.json"), (6, "a_6.1.pt.trace.json")]:
        without_rank(pid=pid).write(tmp_path / name)
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["a_5.1.pt.trace.json"], 1: ["a_6.1.pt.trace.json"], 2: ["b_7.1.pt.trace.json"]}
    assert kinds(found) == ["no_rank"] * 3


def test_windows_of_one_process_without_a_rank(tmp_path: Path) -> None:
    """GIVEN two files of tensorboard_trace_handler for one process WHEN discovered THEN they are one rank."""
    for i in (2, 1):
        without_rank(at_us=i * 1_000_000).write(tmp_path / f"node0_4000.{i}.pt.trace.json")
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["node0_4000.1.pt.trace.json", "node0_4000.2.pt.trace.json"]}
    assert found.others == ()


def test_a_rank_without_distributed_info_joins_the_others(tmp_path: Path) -> None:
    trace(0, 3).write(tmp_path / "rank0.json")
    without_rank(pid=4001, at_us=5).write(tmp_path / "rank1.json")
    trace(2, 3).write(tmp_path / "rank2.json", tail=True)
    found = discover([str(tmp_path)])
    assert files(found) == {rank: [f"rank{rank}.json"] for rank in range(3)}
    assert found.chosen.world_size == 3
    assert found.others == ()


# ---- unusable files ------------------------------------------------------------------------------------------------


def test_each_unusable_file_has_a_note_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace().write(tmp_path / "rank0.json")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere.json")
    (tmp_path / "loop1.json").symlink_to(tmp_path / "loop2.json")
    (tmp_path / "loop2.json").symlink_to(tmp_path / "loop1.json")
    (tmp_path / "self").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "empty.json").touch()
    (tmp_path / "config.json").write_text('{"lr": 1}')
    (tmp_path / "cut.json.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (tmp_path / "readme.txt").write_text("no candidate")
    (tmp_path / "secret.json").write_text("{}")
    plain_open = Path.open

    def open_guarded(self: Path, *args: object, **kwargs: object) -> object:
        if self.name == "secret.json":
            raise PermissionError(13, "Permission denied")
        return plain_open(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_guarded)

    found = discover([str(tmp_path)])

    assert files(found) == {0: ["rank0.json"]}
    reasons = {note.file: (note.kind, note.text) for note in found.notes}
    assert set(reasons) == {
        "pipe.json", "gone.json", "loop1.json", "loop2.json", "empty.json", "config.json", "cut.json.gz", "secret.json",
    }  # fmt: skip
    assert reasons["pipe.json"] == ("ignored_file", "pipe.json: not a regular file; left out")
    assert reasons["gone.json"] == ("ignored_file", "gone.json: a link to nothing; left out")
    assert "symbolic links" in reasons["loop1.json"][1]
    assert reasons["empty.json"][0] == "empty"
    assert reasons["config.json"][1] == "config.json: not a trace (no traceEvents in it); left out"
    assert reasons["secret.json"] == ("permission", "secret.json: not readable; left out")


@pytest.mark.parametrize("name", ["pipe.json", "gone.json", "empty.json", "config.json"])
def test_an_unusable_file_typed_by_name(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "gone.json").symlink_to("nowhere")
    (tmp_path / "empty.json").touch()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError) as caught:
        discover([str(tmp_path / name)])
    assert name in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "reason", "hint"),
    [
        (b"", "the file is empty", "record again"),
        (b"{}", "not a trace (no traceEvents in it)", "give Chrome-trace JSON files"),
        (b'{"traceEvents": [ ]}', "no events in it", "record again"),
        (b"\x1f\x8b\x08\x00", "the gzip stream is cut off at byte 4", "copy it again"),
        (gzip.compress(b"", mtime=0)[:10] + b"\xff" * 30, "the gzip stream is damaged", "copy it again"),
    ],
)
def test_reason_and_hint_agree_and_name_the_file_once(tmp_path: Path, content: bytes, reason: str, hint: str) -> None:
    path = tmp_path / "unreadable: empty b.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        discover([str(path)])
    assert caught.value.message.startswith(f"{path}: {reason}")
    assert caught.value.message.count("empty b.json") == 1
    assert hint in caught.value.hint
    assert "is used" not in caught.value.message

    trace().write(tmp_path / "rank0.json")
    (note,) = discover([str(tmp_path)]).notes
    assert note.kind == ("empty" if "empty" in reason or "no events" in reason else "ignored_file")
    assert note.text.startswith(f"{path.name}: {reason}")
    assert note.text.endswith("; left out")
    assert note.text.count("empty b.json") == 1


def test_reason_and_kind_of_an_error_survive_a_worker(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    with pytest.raises(NotATraceError) as caught:
        decode(tmp_path / "a.json")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (type(error), error.message, error.hint) == (NotATraceError, caught.value.message, caught.value.hint)
    assert (error.reason, error.kind) == ("the file is empty", "empty")


def test_a_path_without_traces_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for typed in (tmp_path, tmp_path / "missing", tmp_path / "*.json", tmp_path / "missing.json"):
        with pytest.raises(InputError) as caught:
            discover([str(typed)])
        assert str(typed) in caught.value.message
        assert caught.value.hint


def test_links_to_the_same_file_count_once(tmp_path: Path) -> None:
    path = trace().write(tmp_path / "a" / "rank0.json")
    (tmp_path / "a" / "rank1.json").symlink_to(path)
    os.link(path, tmp_path / "a" / "rank2.json")
    (tmp_path / "b").symlink_to(tmp_path / "a", target_is_directory=True)
    found = discover([str(tmp_path), str(tmp_path / "a"), str(path), str(tmp_path / "b")])
    assert files(found) == {0: ["rank0.json"]}
    assert found.notes == ()


def test_globs_files_and_folders_may_be_mixed(tmp_path: Path) -> None:
    for rank in range(4):
        trace(rank, 4).write(tmp_path / f"node{rank // 2}" / f"rank{rank}.json")
    found = discover(
        [str(tmp_path / "node0" / "*1.json"), str(tmp_path / "node1"), str(tmp_path / "node0" / "rank0.json")]
    )
    assert sorted(files(found)) == [0, 1, 2, 3]
    assert sorted(files(discover([str(tmp_path / "**" / "*.json")]))) == [0, 1, 2, 3]


def test_a_name_with_the_characters_of_a_glob_is_a_name(tmp_path: Path) -> None:
    path = trace().write(tmp_path / "run[1]" / "rank0.json")
    assert files(discover([str(path)])) == files(discover([str(path.parent)])) == {0: ["rank0.json"]}


# ---- windows, jobs, duplicates -------------------------------------------------------------------------------------


def test_several_windows_of_a_process_are_one_rank(tmp_path: Path) -> None:
    for rank in (0, 1):
        for i in (3, 1, 2):
            trace(rank, at_us=i * 1e6).write(tmp_path / f"node0_{4000 + rank}.{i}.pt.trace.json")
    found = discover([str(tmp_path)])
    assert files(found) == {rank: [f"node0_{4000 + rank}.{i}.pt.trace.json" for i in (1, 2, 3)] for rank in (0, 1)}
    assert found.others == ()


def test_two_jobs_in_a_folder_are_never_mixed(tmp_path: Path) -> None:
    """GIVEN a second job with the same ranks in other processes WHEN discovered THEN the newest is chosen."""
    for job, minutes in (("old", 0), ("new", 10)):
        for rank in (0, 1):
            trace(rank, at_us=minutes * 6e7 + rank, pid=(100 if job == "old" else 200) + rank).write(
                tmp_path / f"{job}{rank}.json"
            )
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["new0.json"], 1: ["new1.json"]}
    (other,) = found.others
    assert {rank: [w.path.name for w in windows] for rank, windows in other.ranks.items()} == {
        0: ["old0.json"],
        1: ["old1.json"],
    }
    assert other.run_id is not None
    assert files(discover([str(tmp_path)], run=other.run_id)) == {0: ["old0.json"], 1: ["old1.json"]}


def test_a_copy_of_a_file_is_not_another_job(tmp_path: Path) -> None:
    for rank in (0, 1):
        trace(rank, at_us=rank).write(tmp_path / f"rank{rank}.json")
    shutil.copy(tmp_path / "rank0.json", tmp_path / "copy of rank0.json")
    os.utime(tmp_path / "copy of rank0.json", (0, 0))
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["rank0.json"], 1: ["rank1.json"]}
    assert found.others == ()
    assert kinds(found) == ["duplicate_rank"]


def test_other_world_sizes_are_other_jobs(tmp_path: Path) -> None:
    trace(0, 2, at_us=5).write(tmp_path / "a.json")
    trace(1, 2, at_us=5).write(tmp_path / "b.json")
    trace(2, 4, at_us=0).write(tmp_path / "c.json")
    found = discover([str(tmp_path)])
    assert files(found) == {0: ["a.json"], 1: ["b.json"]}
    assert [list(other.ranks) for other in found.others] == [[2]]


# ---- captures of tracekit ------------------------------------------------------------------------------------------


def capture(root: Path, run_id: str, *, rank: int = 0, attempt: int = 0, at_us: float = 0, step: int = 4) -> Path:
    builder = TraceBuilder(rank).step(step, at_us, 10).op("op", at_us, 5).capture(run_id=run_id, attempt=attempt)
    return builder.write_capture(root)


def test_newest_run_is_chosen_and_the_others_are_listed(tmp_path: Path) -> None:
    for rank in (0, 1):
        capture(tmp_path, "z-first", rank=rank, at_us=0)
        capture(tmp_path, "a-last", rank=rank, at_us=9e6)
        capture(tmp_path, "a-last", rank=rank, at_us=5e6, attempt=1)
    found = discover([str(tmp_path)])
    assert (found.chosen.run_id, found.chosen.attempt, sorted(found.chosen.ranks)) == ("a-last", 0, [0, 1])
    assert [(other.run_id, other.attempt, len(other.ranks)) for other in found.others] == [
        ("z-first", 0, 2),
        ("a-last", 1, 2),
    ]
    assert found.notes == ()

    chosen = discover([str(tmp_path)], run="z-first").chosen
    assert (chosen.run_id, chosen.attempt) == ("z-first", 0)
    assert discover([str(tmp_path)], attempt=1).chosen.attempt == 1
    for selection in ({"run": "x"}, {"attempt": 7}, {"run": "z-first", "attempt": 1}):
        with pytest.raises(UsageError) as caught:
            discover([str(tmp_path)], **selection)
        assert "z-first" in caught.value.hint


def test_windows_of_a_capture_are_in_the_order_of_steps(tmp_path: Path) -> None:
    for step in (10, 4, 100):
        capture(tmp_path, "run", step=step, at_us=step * 1000)
    windows = discover([str(tmp_path)]).chosen.ranks[0]
    assert [window.first_step for window in windows] == [4, 10, 100]


def test_an_unfinished_export_belongs_to_the_run_of_its_folder(tmp_path: Path) -> None:
    complete = capture(tmp_path, "run", rank=3, step=4)
    folder = tmp_path / "run/attempt-0/step-000000010"
    folder.mkdir(parents=True)
    unfinished = trace(3, at_us=9_000_000).write(folder / ".rank-000003.host.4711.tmp")

    found = discover([str(tmp_path)])

    assert (found.chosen.run_id, found.others) == ("run", ())
    assert files(found) == {3: [complete.name, unfinished.name]}
    assert [window.first_step for window in found.chosen.ranks[3]] == [4, 10]
    assert kinds(found) == ["unfinished_tmp"]


def test_manifests_are_believed_only_about_traces_that_are_there(tmp_path: Path) -> None:
    path = capture(tmp_path, "run")
    capture(tmp_path, "run", rank=1).unlink()
    for name, content in (("a", b"{"), ("b", b"\xff\xfe"), ("c", b"[" * 100_000), ("d", b'{"version": 1}'), ("e", b"")):
        (path.parent / f"{name}.manifest.json").write_bytes(content)
    found = discover([str(tmp_path)])
    assert files(found) == {0: [path.name]}
    assert found.notes == ()


def test_an_emptied_file_with_a_manifest_costs_only_its_rank(tmp_path: Path) -> None:
    capture(tmp_path, "run", rank=0).write_bytes(b"")
    good = capture(tmp_path, "run", rank=1)
    found = discover([str(tmp_path)])
    assert found.chosen.ranks[1][0].path == good
    assert found.chosen.start_ns is not None


def test_without_its_manifest_a_capture_is_found_by_its_metadata(tmp_path: Path) -> None:
    path = capture(tmp_path, "run", rank=1)
    path.with_name("rank-000001.manifest.json").unlink()
    found = discover([str(tmp_path)])
    assert (found.chosen.run_id, list(found.chosen.ranks)) == ("run", [1])


def test_metadata_larger_than_the_first_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = capture(tmp_path, "run", rank=1)
    path.with_name("rank-000001.manifest.json").unlink()
    monkeypatch.setattr(identify, "_FIRST_EVENTS_BYTES", 100)
    found = discover([str(tmp_path)])
    assert (found.chosen.run_id, list(found.chosen.ranks)) == ("run", [1])


def test_an_unfinished_export_is_used_if_there_is_no_other_file(tmp_path: Path) -> None:
    path = capture(tmp_path, "run")
    unfinished = path.rename(path.with_name(".rank-000000.node0.4711.tmp"))
    path.with_name("rank-000000.manifest.json").unlink()
    found = discover([str(tmp_path)])
    assert files(found) == {0: [unfinished.name]}
    assert kinds(found) == ["unfinished_tmp"]

    shutil.copy(unfinished, path)
    found = discover([str(tmp_path)])
    assert files(found) == {0: [path.name]}
    assert kinds(found) == ["unfinished_tmp"]
    assert found.notes[0].severity == "info"


def test_nothing_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN manifests WHEN discovered THEN one file is opened, for the time of the run."""
    for rank in range(8):
        capture(tmp_path, "run", rank=rank)
    opened = []
    plain = grouping.identify
    monkeypatch.setattr(grouping, "identify", lambda path: (opened.append(path), plain(path))[1])
    assert len(discover([str(tmp_path)]).chosen.ranks) == 8
    assert len(opened) == 1
