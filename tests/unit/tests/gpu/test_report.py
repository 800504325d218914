"""What `make gpu` keeps in reports/gpu/: the last result of each test that ran on a device, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gpu import report as plugin
from tests.gpu.report import FOLDER, merge_results, read_results, render_results, write_results

H200 = {"device": "NVIDIA H200", "devices": 1, "torch": "2.13.0+cu130", "driver": "570.124.06", "date": "2026-11-24"}
TWO = H200 | {"devices": 2, "date": "2026-11-01"}


def outcome_of(test: str, outcome: Any, *, skipped: str = "", **figures: Any) -> pytest.TestReport:
    longrepr: Any = ("tests/gpu/conftest.py", 40, f"Skipped: {skipped}") if skipped else None
    return pytest.TestReport(
        nodeid=f"tests/gpu/{test}",
        location=(test, 1, test),
        keywords={},
        outcome=outcome,
        longrepr=longrepr,
        when="call",
        user_properties=list(figures.items()),
    )


def test_a_result_names_the_device_and_what_was_measured(tmp_path: Path) -> None:
    reports = [
        outcome_of("test_streams.py::test_a", "passed", compute_ms=20.0123),
        outcome_of("test_graphs.py::test_b", "failed"),
        outcome_of("test_nccl.py::test_c", "skipped", skipped="needs two devices"),
    ]

    write_results(merge_results({}, reports, H200), tmp_path)

    rows = [line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("|")]
    facts = "NVIDIA H200 | 2.13.0+cu130 | 570.124.06 | 2026-11-24 |"
    assert rows[2:] == [
        f"| `test_graphs.py::test_b` | failed |  | {facts}",
        "| `test_nccl.py::test_c` | not run yet: needs two devices |  |  |  |  |  |",
        f"| `test_streams.py::test_a` | passed | compute ms 20.01 | {facts}",
    ]
    assert read_results(tmp_path)["test_streams.py::test_a"]["measured"] == {"compute_ms": 20.0123}


def test_a_skipped_test_keeps_the_result_that_it_had() -> None:
    """GIVEN results of two devices WHEN the tests run on one THEN what needs two stays as it was."""
    before = merge_results({}, [outcome_of("test_nccl.py::test_c", "passed", exposed_ms=3.0)], TWO)
    now = [
        outcome_of("test_nccl.py::test_c", "skipped", skipped="needs two devices"),
        outcome_of("test_streams.py::test_a", "passed"),
    ]

    results = merge_results(before, now, H200)

    assert results["test_nccl.py::test_c"] == before["test_nccl.py::test_c"]
    assert results["test_streams.py::test_a"]["date"] == "2026-11-24"
    assert "| 2 x NVIDIA H200 |" in render_results(results)


def test_a_new_result_replaces_the_one_before() -> None:
    before = merge_results({}, [outcome_of("test_streams.py::test_a", "passed")], TWO)

    results = merge_results(before, [outcome_of("test_streams.py::test_a", "failed")], H200)

    assert [(result["outcome"], result["devices"]) for result in results.values()] == [("failed", 1)]


@pytest.mark.parametrize(("devices", "written"), [(0, False), (1, True)])
def test_nothing_is_written_without_a_device(
    devices: int, written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "FOLDER", tmp_path)
    monkeypatch.setattr(plugin, "_reports", [])
    monkeypatch.setattr(plugin, "count_devices", lambda: devices)
    monkeypatch.setattr(plugin, "describe_devices", lambda: H200)

    plugin.pytest_runtest_logreport(outcome_of("test_streams.py::test_a", "passed"))
    plugin.pytest_sessionfinish()

    assert [file.name for file in sorted(tmp_path.iterdir())] == ["README.md", "results.json"] * written


def test_only_tests_of_devices_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_reports", [])
    other = outcome_of("test_streams.py::test_a", "passed")
    other.nodeid = "tests/unit/test_layout.py::test_files_are_short"

    plugin.pytest_runtest_logreport(other)

    assert plugin._reports == []


def test_the_page_in_the_repository_is_that_of_its_results() -> None:
    """Without results it says that the tests were not run yet."""
    results = read_results(FOLDER)

    assert (FOLDER / "README.md").read_text() == render_results(results)
    assert ("not run yet: no machine" in render_results(results)) == (not results)
