"""Where gates are read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.cli.check import find_gates, read_gates
from tracekit.errors import UsageError

GATES = "[gates.step_time]\nmax = '1s'\n"
PYPROJECT = "[project]\nname = 'x'\n[tool.tracekit.gates.step_time]\nmax = '2s'\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder, without variables of the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACEKIT_CONFIG", raising=False)
    return tmp_path


def test_tracekit_toml_comes_before_pyproject(folder: Path) -> None:
    assert find_gates() is None
    (folder / "pyproject.toml").write_text(PYPROJECT)
    assert find_gates() == ({"step_time": {"max": "2s"}}, "pyproject.toml [tool.tracekit.gates]")
    (folder / "tracekit.toml").write_text(GATES)
    assert find_gates() == ({"step_time": {"max": "1s"}}, "tracekit.toml [gates]")


def test_settings_of_a_folder_above_hold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tracekit.toml").write_text(GATES)
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert find_gates() == ({"step_time": {"max": "1s"}}, f"{folder / 'tracekit.toml'} [gates]")


def test_settings_can_be_named_or_switched_off(folder: Path) -> None:
    (folder / "tracekit.toml").write_text(GATES)
    (folder / "other.toml").write_text("jobs = 2\n")
    assert find_gates("other.toml") is None
    assert find_gates("0") is None


def test_a_file_of_gates_can_be_named(folder: Path) -> None:
    (folder / "nightly.toml").write_text(GATES)
    assert read_gates(Path("nightly.toml")) == ({"step_time": {"max": "1s"}}, "nightly.toml [gates]")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[other]\n", "it has no table of gates"),
        ("gates = 3\n", "it is no table"),
        ("[gates\n", "no TOML"),
        ("\xff", "no TOML"),
        ("[gates]\nstep_time = " + "9" * 5000, "nightly.toml: a number has too many digits"),
        ("x = " + "[" * 20000, "nightly.toml: tables or lists in it are nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(folder: Path, content: str, message: str) -> None:
    (folder / "nightly.toml").write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match=message):
        read_gates(Path("nightly.toml"))


def test_a_missing_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_gates(Path("none.toml"))
