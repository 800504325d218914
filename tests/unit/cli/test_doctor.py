"""What `tracekit doctor` finds, how it says it, and that it never fails."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tracekit import __version__
from tracekit.checks.selfcheck import Capability, try_torch
from tracekit.cli import cli
from tracekit.cli.doctor import EXTRAS, Check, advise, draw, examine
from tracekit.read.decode.decoder import chosen_decoder

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The distributions that are installed, as the test says; torch is never really tried."""
    versions = {"torch": "2.13.0", "click": "8.5.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    module = __import__("tracekit.cli.doctor", fromlist=["doctor"])
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(
        importlib.metadata, "requires", lambda name: ["click>=8.2", "rich>=13.7", "torch>=2.7; extra == 'torch'"]
    )
    monkeypatch.setattr(module, "try_torch", list)
    return versions


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_it_lists_exactly_the_extras_that_can_be_installed() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert {extra.name for extra in EXTRAS} == set(extras) - {"all", "dev"}
    for extra in EXTRAS:
        (requirement,) = extras[extra.name]
        assert requirement.startswith(f"{extra.distribution}>=")


def test_it_says_where_the_cache_is(installed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_name(examine())["cache"].found == "none (TRACEKIT_CACHE=0)"
    monkeypatch.delenv("TRACEKIT_CACHE")
    assert "beside each trace" in by_name(examine())["cache"].found
    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path))
    assert by_name(examine())["cache"].found == f"in {tmp_path}/.tracekit-cache, nothing yet"
    (tmp_path / ".tracekit-cache").mkdir()
    (tmp_path / ".tracekit-cache" / "entry").write_bytes(bytes(1500))
    assert by_name(examine())["cache"].found == f"in {tmp_path}/.tracekit-cache, 1.5 kB"


def test_a_missing_extra_comes_with_the_command_that_gets_it(installed: dict[str, str]) -> None:
    checks = by_name(examine())
    assert checks["torch"] == Check(name="torch", state="ok", found="torch 2.13.0")
    assert checks["sql"].state == "absent"
    assert checks["sql"].remedy == "pip install 'torch-tracekit[sql]'"


def test_a_missing_core_library_is_a_problem_and_an_extra_of_the_same_list_is_none(installed: dict[str, str]) -> None:
    checks = by_name(examine())
    assert checks["click"].state == "ok"
    assert checks["rich"] == Check(name="rich", state="problem", found="not installed", remedy="pip install rich")


def test_the_unrelated_distribution_is_a_problem_with_its_remedy(installed: dict[str, str]) -> None:
    assert not any("PyPI" in check.name for check in examine())
    installed["tracekit"] = "0.0.3"
    check = by_name(examine())["tracekit (PyPI)"]
    assert check.state == "problem"
    assert "0.0.3" in check.found
    assert check.remedy == "pip uninstall tracekit; pip install --force-reinstall --no-deps torch-tracekit"


def test_it_runs_from_a_source_tree_that_is_not_installed(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert by_name(examine())["tracekit"].found == __version__


def test_torch_is_not_tried_where_it_is_not_installed(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = __import__("tracekit.cli.doctor", fromlist=["doctor"])
    broken = Capability(name="gloo", works=False, detail="RuntimeError: no interface", remedy="set a variable")
    monkeypatch.setattr(module, "try_torch", lambda: [broken])
    assert by_name(examine())["torch: gloo"] == Check(
        name="torch: gloo", state="problem", found="RuntimeError: no interface", remedy="set a variable"
    )
    del installed["torch"]
    checks = by_name(examine())
    assert checks["torch"].remedy == "pip install 'torch-tracekit[torch]'"
    assert "torch: gloo" not in checks


def test_advice_names_problems_first_and_ends_with_the_next_command() -> None:
    checks = [
        Check(name="sql", state="absent", found="not installed", remedy="pip install duckdb"),
        Check(name="rich", state="problem", found="not installed", remedy="pip install rich"),
        Check(name="torch: gpu", state="absent", found="no GPU that torch can use"),
    ]
    assert [line for line in advise(checks) if line] == [
        "To mend:",
        "  rich  pip install rich",
        "To add:",
        "  sql  pip install duckdb",
        "Next: tracekit analyze FOLDER_OF_TRACES",
    ]
    with_torch = [*checks, Check(name="torch", state="ok", found="torch 2.13.0")]
    assert advise(with_torch)[-1] == "Next: tracekit demo"


def test_the_table_takes_nothing_for_markup() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(draw([Check(name="gpu", state="ok", found="8 x [red]H100[/red]")]))
    assert "8 x [red]H100[/red]" in captured.get()


@pytest.mark.parametrize("has_native", [True, False])
def test_the_command_prints_its_result_to_stdout(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch, has_native: bool
) -> None:
    monkeypatch.setattr("tracekit.cli.doctor.has_native_decoder", lambda: has_native)
    result = CliRunner().invoke(cli, ["doctor"], prog_name="tracekit")
    assert result.exit_code == 0, result.stderr
    assert chosen_decoder() in result.stdout
    assert "pip install 'torch-tracekit[hta]'" in result.stdout
    assert result.stderr == ""
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_torch_is_tried_for_real() -> None:
    parts = {part.name: part for part in try_torch()}
    assert list(parts) == ["torch", "profiler", "gpu", "distributed", "gloo", "nccl"]
    assert not [part for part in parts.values() if part.works is False]
    assert parts["gloo"].works is True
