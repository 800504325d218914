"""Output files that are joined from parts."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT
from tracekit.errors import OutputError
from tracekit.render.output import move_to_end, new_file, new_folder, scratch_folder


@pytest.mark.parametrize("kernel_copies", [True, False])
def test_parts_are_joined_in_order_with_and_without_the_kernel_s_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_copies: bool
) -> None:
    if not kernel_copies:

        def refuse(*_: object) -> int:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr("os.copy_file_range", refuse, raising=False)
    parts = [tmp_path / str(number) for number in range(3)]
    for number, part in enumerate(parts):
        part.write_bytes(bytes([number]) * (number * 100_000))
    with new_file(tmp_path / "whole") as stream:
        for part in parts:
            stream.write(b"<")
            move_to_end(part, stream)
            stream.write(b">")
    expected = b"".join(b"<" + bytes([number]) * (number * 100_000) + b">" for number in range(3))
    assert (tmp_path / "whole").read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_a_part_is_compressed_if_the_stream_compresses(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"x" * 100_000)
    with (tmp_path / "whole.gz").open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb") as stream:
        move_to_end(part, stream)
    assert gzip.decompress((tmp_path / "whole.gz").read_bytes()) == b"x" * 100_000


def test_missing_folders_above_a_file_are_made(tmp_path: Path) -> None:
    with new_file(tmp_path / "reports" / "today" / "run.json") as stream:
        stream.write(b"{}")
    assert (tmp_path / "reports" / "today" / "run.json").read_bytes() == b"{}"


NAMES = ("a.csv", "b.csv")


def write_folder(path: Path, content: str, *, force: bool = False) -> None:
    with new_folder(path, NAMES, force=force) as parts:
        (parts / "a.csv").write_text(content)


def test_a_folder_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rename = tmp_path / "tables", Path.rename
    write_folder(path, "first")

    def refuse_new(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_new)
    with pytest.raises(OutputError, match="Permission denied"):
        write_folder(path, "second", force=True)
    assert (path / "a.csv").read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_there_when_it_is_complete(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_folder(tmp_path / "new" / "tables", 1)  # type: ignore[arg-type]
    assert list((tmp_path / "new").iterdir()) == []
    write_folder(tmp_path / "new" / "tables", "first")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["tables"]


def test_a_folder_is_replaced_only_by_force_and_only_if_nothing_else_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    write_folder(folder, "first")
    with pytest.raises(OutputError, match="exists already"):
        write_folder(folder, "second")
    (folder / "b.csv").touch()
    write_folder(folder, "second", force=True)
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("a.csv", "second")]
    (folder / "thesis.tex").touch()
    with pytest.raises(OutputError, match=r"other files, such as thesis\.tex"):
        write_folder(folder, "third", force=True)
    assert (folder / "thesis.tex").exists()
    assert (folder / "a.csv").read_text() == "second"


def test_an_empty_folder_is_taken_and_a_file_or_a_link_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", "first")
    assert (tmp_path / "empty" / "a.csv").read_text() == "first"
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("file", "link"):
        with pytest.raises(OutputError, match="a link or not a folder"):
            write_folder(tmp_path / name, "second", force=True)


# ---- what killed processes leave -------------------------------------------------------------------------------------

_WRITER = """
import signal, sys
from pathlib import Path
from tracekit.render.output import new_file, scratch_folder
output = Path(sys.argv[1])
with scratch_folder(output) as folder, new_file(output) as stream:
    (folder / "part").write_bytes(b"half")
    stream.write(b"half")
    stream.flush()
    print("began", flush=True)
    signal.pause()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a process that has written half of tmp_path/run.pftrace."""
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "run.pftrace")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        yield process
        process.kill()


def write(path: Path) -> None:
    with scratch_folder(path, force=True), new_file(path, force=True) as stream:
        stream.write(b"whole")


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    writer.kill()
    writer.wait()
    assert len(list(tmp_path.iterdir())) == 2
    write(tmp_path / "other.pftrace")
    assert len(list(tmp_path.iterdir())) == 3
    write(tmp_path / "run.pftrace")
    assert {path.name for path in tmp_path.iterdir()} == {"run.pftrace", "other.pftrace"}


def test_what_a_living_process_writes_stays(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    before = set(tmp_path.iterdir())
    write(tmp_path / "run.pftrace")
    assert set(tmp_path.iterdir()) == {*before, tmp_path / "run.pftrace"}
    assert len(before) == 2


def test_files_of_similar_names_stay(tmp_path: Path) -> None:
    names = {".run.pftrace.abcdefgh.tmp", ".run.pftrace.tracekit-abcdefgh", ".run.pftraces.tracekit-abcdefgh.tmp"}
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".run.pftrace.tracekit-12345678.tmp").symlink_to("elsewhere")
    before = {path.name for path in tmp_path.iterdir()}
    write(tmp_path / "run.pftrace")
    assert {path.name for path in tmp_path.iterdir()} == before | {"run.pftrace"}
