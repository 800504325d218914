"""What happens to files and paths that are no trace: which are left out, which are an error, and with what reason?"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
from pathlib import Path

import pytest

from tests.unit.read.decode.decoders import decode
from tests.unit.read.files.run_traces import files, trace
from tracekit.errors import InputError, NotATraceError
from tracekit.read.files.discover import discover


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
    reasons = {note.file: (note.id, note.text) for note in found.notes}
    assert set(reasons) == {
        "pipe.json", "gone.json", "loop1.json", "loop2.json", "empty.json", "config.json", "cut.json.gz", "secret.json",
    }  # fmt: skip
    assert reasons["pipe.json"] == ("ignored-file", "pipe.json: not a regular file; left out")
    assert reasons["gone.json"] == ("ignored-file", "gone.json: a link to nothing; left out")
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
    assert note.id == ("empty" if "empty" in reason or "no events" in reason else "ignored-file")
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


PERFETTO_TRACE = b"\n\x1c2\x1a\n\x0c\x08\x06\x10\xf8\x88\xd2\xe9" + b"\n\x0c\x08\x01\x10\xf8" * 4


def test_a_path_without_traces_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for typed in (tmp_path, tmp_path / "missing", tmp_path / "*.json", tmp_path / "missing.json"):
        with pytest.raises(InputError) as caught:
            discover([str(typed)])
        assert str(typed) in caught.value.message
        assert caught.value.hint


def test_a_folder_with_perfetto_traces_alone_says_so(tmp_path: Path) -> None:
    (tmp_path / "rank0.pftrace").write_bytes(PERFETTO_TRACE)
    with pytest.raises(InputError, match=r"rank0\.pftrace: not JSON but a Perfetto trace") as caught:
        discover([str(tmp_path)])
    assert "export_chrome_trace" in (caught.value.hint or "")
    trace().write(tmp_path / "rank0.json")
    assert discover([str(tmp_path)]).notes == ()


TEXT = trace().text().decode()


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (TEXT.encode("utf-16"), "text in UTF-16", "iconv -t UTF-8"),
        (TEXT.encode("utf-16-le"), "text in UTF-16", "iconv -t UTF-8"),
        (TEXT.encode("utf-16-be"), "text in UTF-16", "iconv -t UTF-8"),
        (TEXT.encode("utf-32"), "text in UTF-32", "iconv -t UTF-8"),
        (TEXT.encode("utf-32-le"), "text in UTF-32", "iconv -t UTF-8"),
        (TEXT.encode("utf-32-be"), "text in UTF-32", "iconv -t UTF-8"),
        (bz2.compress(TEXT.encode()), "packed with bzip2", "bunzip2"),
        (lzma.compress(TEXT.encode()), "packed with xz", "unxz"),
        (gzip.compress(gzip.compress(TEXT.encode())), "packed with gzip twice", "gunzip"),
        (PERFETTO_TRACE, "a Perfetto trace", "export_chrome_trace"),
    ],
    ids=["UTF-16", "16 LE", "16 BE", "UTF-32", "32 LE", "32 BE", "bzip2", "xz", "gzip twice", "Perfetto"],
)
def test_a_trace_in_a_form_that_is_not_read_is_named_with_the_remedy(
    tmp_path: Path, content: bytes, what: str, hint: str
) -> None:
    trace(1).write(tmp_path / "rank1.json")
    (tmp_path / "rank0.json").write_bytes(content)

    (note,) = discover([str(tmp_path)]).notes
    assert note.text.startswith(f"rank0.json: not a trace but {what}")

    with pytest.raises(InputError, match=f"not a trace but {what}") as caught:
        discover([str(tmp_path / "rank0.json")])
    assert hint in (caught.value.hint or "")


def test_a_link_to_the_file_of_another_rank_is_named(tmp_path: Path) -> None:
    for rank in (0, 1):
        trace(rank, 3).write(tmp_path / f"rank{rank}.json")
    (tmp_path / "rank2.json").symlink_to("rank1.json")
    (tmp_path / "latest.json").symlink_to("rank1.json")

    found = discover([str(tmp_path), str(tmp_path / "rank1.json")])

    assert files(found)[0] == ["rank0.json"]
    assert len(found.chosen.ranks) == 2
    (note,) = found.notes
    assert (note.id, note.severity, note.rank, note.file) == ("ignored-file", "warning", 2, "rank2.json")
    assert note.text == "rank 2: rank2.json: another name of the file rank1.json; left out"
