"""Which file has a project's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.cli.inputs import settings as settings_file
from tracekit.cli.inputs.settings import find_settings_file
from tracekit.errors import InputError, UsageError


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEKIT_CONFIG", raising=False)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_nearest_folder_that_has_settings_counts(tmp_path: Path) -> None:
    outer = write(tmp_path / "tracekit.toml", "jobs = 1")
    write(tmp_path / "a" / "pyproject.toml", "[tool.black]\nline-length = 120")
    inner = tmp_path / "a" / "b"
    inner.mkdir()
    found = find_settings_file(folder=inner)
    assert found is not None
    assert (found.path, found.content) == (outer, {"jobs": 1})
    nearer = write(tmp_path / "a" / "pyproject.toml", "[tool.tracekit]\njobs = 2")
    found = find_settings_file(folder=inner)
    assert found is not None
    assert (found.path, found.content) == (nearer, {"jobs": 2})


def test_in_a_folder_tracekit_toml_precedes_pyproject_toml(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.tracekit]\njobs = 2")
    own = write(tmp_path / "tracekit.toml", "jobs = 1")
    found = find_settings_file(folder=tmp_path)
    assert found is not None
    assert found.path == own


def test_a_file_can_be_named_and_none_can_be_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "tracekit.toml", "jobs = 1")
    other = write(tmp_path / "other" / "ci.toml", "jobs = 9")
    monkeypatch.setenv("TRACEKIT_CONFIG", str(other))
    found = find_settings_file(folder=tmp_path)
    assert found is not None
    assert found.content == {"jobs": 9}
    found = find_settings_file(str(tmp_path / "tracekit.toml"))  # the option precedes the variable
    assert found is not None
    assert found.content == {"jobs": 1}
    monkeypatch.setenv("TRACEKIT_CONFIG", "0")
    assert find_settings_file(folder=tmp_path) is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pyproject.toml", "[tool.black]", "it has no table"),
        ("pyproject.toml", "[tool]\ntracekit = 1", "tool.tracekit is no table"),
        ("pyproject.toml", "tool = 'tracekit'", "it has no table"),
        ("tracekit.toml", "jobs = [", "no TOML"),
        ("tracekit.toml", "jobs = " + "9" * 5000, "a number has too many digits"),
        ("tracekit.toml", "jobs = 0x" + "f" * 5000, "a number has too many digits"),
        ("tracekit.toml", "jobs = " + "[" * 2000, "nested too deeply"),
        ("tracekit.toml", "gates." * 2000 + "x = 1", "nested too deeply"),
    ],
)
def test_a_named_file_without_settings_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(UsageError, match=message):
        find_settings_file(str(path))


def test_a_broken_pyproject_toml_that_does_not_name_tracekit_is_not_ours(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.black")
    assert find_settings_file(folder=tmp_path) is None or find_settings_file(folder=tmp_path).path.parent != tmp_path
    write(tmp_path / "pyproject.toml", "[tool.tracekit")
    with pytest.raises(UsageError, match="no TOML"):
        find_settings_file(folder=tmp_path)


def test_a_missing_named_file_is_refused() -> None:
    with pytest.raises(UsageError, match="no such file of settings"):
        find_settings_file("missing.toml")


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tracekit.toml").write_bytes(b"links = '\xff'")
    with pytest.raises(UsageError, match="no TOML, which is UTF-8") as error:
        find_settings_file(folder=tmp_path)
    assert error.value.hint == "save it as UTF-8"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "tracekit.toml", "jobs = 1")

    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(settings_file, "read_small_file", denied)
    with pytest.raises(InputError, match=r"tracekit\.toml: Permission denied") as error:
        find_settings_file(folder=tmp_path)
    assert (error.value.hint, str(path) in error.value.message) == ("check the file and its permissions", True)


def test_a_path_that_cannot_be_looked_at_is_named() -> None:
    """GIVEN a name that is too long for the file system, as for a folder that may not be entered."""
    with pytest.raises(InputError, match=r"^a{300}: File name too long"):
        find_settings_file("a" * 300)
