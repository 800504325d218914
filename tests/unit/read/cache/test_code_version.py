"""The version of the code: other code that computes summaries has another version, on every host the same one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import grimp
import pytest

from tracekit.read.cache import store as module
from tracekit.read.cache.store import PACKAGES, code_version

SOURCE = "rank/lanes.py"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "tracekit"
    for name in ("model/summary.py", "read/native/scan.so", SOURCE, "render/terminal.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"content of {name}")
    monkeypatch.setattr(module, "__file__", str(root / "read" / "cache" / "store.py"))
    monkeypatch.setattr(module, "__version__", module.__version__)
    monkeypatch.setattr(module, "SUMMARY_FORMAT", module.SUMMARY_FORMAT)
    return root


def _edit(root: Path) -> None:
    (root / SOURCE).write_text("shorter")


def _rename(root: Path) -> None:
    (root / SOURCE).rename(root / "rank" / "lames.py")


def _add(root: Path) -> None:
    (root / "model" / "new.py").write_text("")


def _remove(root: Path) -> None:
    (root / "model" / "summary.py").unlink()


def _build_extension(root: Path) -> None:
    (root / "read" / "native" / "scan.so").write_text("another")


def _release(root: Path) -> None:
    module.__version__ = "99"


def _raise_format(root: Path) -> None:
    module.SUMMARY_FORMAT += 1  # type: ignore[misc]


@pytest.mark.parametrize("change", [_edit, _rename, _add, _remove, _build_extension, _release, _raise_format])
def test_changed_code_has_another_version(package: Path, change: Callable[[Path], None]) -> None:
    before = code_version()
    change(package)
    assert code_version() != before


def _compile(root: Path) -> None:
    (root / "model" / "__pycache__").mkdir()
    (root / "model" / "__pycache__" / "summary.cpython-311.pyc").write_text("")


def _draw_otherwise(root: Path) -> None:
    (root / "render" / "terminal.py").write_text("drawn otherwise")


def _install_later(root: Path) -> None:
    os.utime(root / SOURCE, ns=(0, 0))


@pytest.mark.parametrize("change", [_compile, _draw_otherwise, _install_later])
def test_code_that_computes_the_same_has_the_same_version(package: Path, change: Callable[[Path], None]) -> None:
    before = code_version()
    change(package)
    assert code_version() == before


def test_the_version_covers_all_packages_that_compute_summaries() -> None:
    """GIVEN what loading imports, for which summaries are computed THEN each of these packages counts."""
    imported = grimp.build_graph("tracekit").find_upstream_modules("tracekit.loading.load")
    packages = {name.split(".")[1] for name in imported if name.count(".") > 1}

    assert packages <= set(PACKAGES)
