"""Where gates are read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.cli.inputs.gate_file import find_gates, read_gates
from tracekit.errors import UsageError

GATES = "[gates.step_time]\nmax = '1s'\n"
PYPROJECT = "[project]\nname = 'x'\n[tool.tracekit.gates.step_time]\nmax = '2s'\n"


def test_tracekit_toml_comes_before_pyproject(tmp_path: Path) -> None:
    assert find_gates(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    found = find_gates(tmp_path)
    assert found == ({"step_time": {"max": "2s"}}, f"{tmp_path / 'pyproject.toml'} [tool.tracekit.gates]")
    (tmp_path / "tracekit.toml").write_text(GATES)
    found = find_gates(tmp_path)
    assert found == ({"step_time": {"max": "1s"}}, f"{tmp_path / 'tracekit.toml'} [gates]")


def test_a_file_without_gates_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "tracekit.toml").write_text("[other]\n")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    found = find_gates(tmp_path)
    assert found is not None
    assert found[0] == {"step_time": {"max": "2s"}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[other]\n", r"it has no table \[gates\]"),
        ("gates = 3\n", "it is no table"),
        ("[gates\n", "no valid TOML"),
        ("\xff", "no valid TOML"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "nightly.toml"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match=message):
        read_gates(file)


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_gates(tmp_path / "none.toml")
