"""Whoever edits how summaries are made must not get an old one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tracekit
from tracekit.read.cache import code_version


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "tracekit"
    for name in ("model/summary.py", "read/native/scan.so", "analysis/lanes.py", "render/terminal.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"content of {name}")
    monkeypatch.setattr(tracekit, "__file__", str(root / "__init__.py"))
    return root


def _edited(root: Path) -> None:
    (root / "analysis" / "lanes.py").write_text("content of analysis/lanes.pz")


def _renamed(root: Path) -> None:
    (root / "analysis" / "lanes.py").rename(root / "analysis" / "lames.py")


def _added(root: Path) -> None:
    (root / "model" / "new.py").write_text("")


def _removed(root: Path) -> None:
    (root / "model" / "summary.py").unlink()


def _built_again(root: Path) -> None:
    (root / "read" / "native" / "scan.so").write_text("another")


def _another_release(root: Path) -> None:
    tracekit.__version__ = "99"


@pytest.mark.parametrize("change", [_edited, _renamed, _added, _removed, _built_again, _another_release])
def test_another_version(package: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]) -> None:
    monkeypatch.setattr(tracekit, "__version__", tracekit.__version__)
    before = code_version._digest_of_files()
    monkeypatch.setattr(code_version, "IMPORTED_CODE", before)
    assert code_version.is_as_imported()
    change(package)
    assert code_version._digest_of_files() != before
    assert not code_version.is_as_imported()


def test_the_same_version(package: Path) -> None:
    before = code_version._digest_of_files()
    (package / "model" / "__pycache__").mkdir()
    (package / "model" / "__pycache__" / "summary.cpython-311.pyc").write_text("")
    (package / "render" / "terminal.py").write_text("drawn otherwise")
    assert before is not None
    assert code_version._digest_of_files() == before


def test_without_sources_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracekit, "__file__", str(tmp_path / "__init__.py"))
    assert code_version._digest_of_files() is None
    monkeypatch.setattr(code_version, "IMPORTED_CODE", None)
    assert not code_version.is_as_imported()
