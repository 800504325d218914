"""`tracekit cache`: the folder that the settings choose, its size, and what emptying it removes."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.places import DATA
from tracekit.cli import cli
from tracekit.read.cache import store
from tracekit.read.cache.cache_dir import CACHE_FOLDER

DDP = DATA / "ddp_slow_rank"


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache folder of this user, a minute from now and without settings."""
    monkeypatch.delenv("TRACEKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store, "_now_ns", lambda: time.time_ns() + 60 * 10**9)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "torch-tracekit"


def tracekit(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], env=environment, prog_name="tracekit")


def test_the_folder_is_the_users_unless_a_setting_names_one(tmp_path: Path, user_cache: Path) -> None:
    assert tracekit("cache", "dir").stdout == f"{user_cache}\n"
    assert tracekit("cache", "dir", TRACEKIT_CACHE="0").stdout == f"{user_cache}\n"
    assert tracekit("cache", "dir", TRACEKIT_CACHE="/elsewhere").stdout == f"/elsewhere/{CACHE_FOLDER}\n"
    (tmp_path / "tracekit.toml").write_text("cache = 'here'\n")
    assert tracekit("cache", "dir").stdout == f"{tmp_path}/here/{CACHE_FOLDER}\n"


def test_it_is_filled_measured_and_emptied(user_cache: Path) -> None:
    assert tracekit("cache", "size").stdout == f"nothing in {user_cache}\n"
    assert tracekit("analyze", DDP).exit_code == 0
    entries = [file.stat().st_size for file in user_cache.glob("*.summary")]
    assert len(entries) == 2
    (size,) = tracekit("cache", "size").stdout.splitlines()
    assert size == f"2 files of {sum(entries) / 1000:.3g} kB in {user_cache}"
    assert tracekit("cache", "clean").stdout == f"removed {size.replace(' in ', ' from ')}\n"
    assert not user_cache.exists()
    assert tracekit("cache", "clean").stdout == f"removed nothing from {user_cache}\n"


def test_with_a_run_it_is_about_the_folders_beside_its_traces(tmp_path: Path, user_cache: Path) -> None:
    step = tmp_path / "runs" / "run-1" / "attempt-0" / "step-000000003"
    shutil.copytree(DDP, step)
    assert tracekit("analyze", "runs").exit_code == 0
    assert not user_cache.exists()
    assert tracekit("cache", "size", "runs").stdout.startswith("2 files of ")
    result = tracekit("cache", "clean", "runs")
    assert result.stdout.endswith(" from 1 folder below runs\n")
    assert not (step / CACHE_FOLDER).exists()
    assert len(list(step.iterdir())) == len(list(DDP.iterdir()))
    assert tracekit("cache", "clean", "missing").exit_code == 3
