"""A plugin of pytest that keeps the last results of `make gpu` in reports/gpu/ (`-p tests.gpu.report`).

It writes only where there was a device. A test that was skipped keeps the result that it had: a machine with one device
does not take away what was measured on two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.devices import count_devices, describe_devices
from tests.places import ROOT

FOLDER = ROOT / "reports" / "gpu"
NOT_RUN_YET = "not run yet"
_HEAD = """# Results on GPUs

`make gpu` runs the tests of `tests/gpu/` and writes the last result of each test here, with the device that it ran on.
[docs/gpus.md](../../docs/gpus.md) says what they check. Times are those that the device recorded.
"""
_COLUMNS = ("test", "outcome", "measured", "device", "torch", "driver", "date")

Results = dict[str, dict[str, Any]]

_reports: list[pytest.TestReport] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/gpu/" in report.nodeid and (report.when == "call" or report.outcome != "passed"):
        _reports.append(report)


def pytest_sessionfinish() -> None:
    if _reports and count_devices():
        facts = describe_devices() | {"date": datetime.now(tz=UTC).date().isoformat()}
        write_results(merge_results(read_results(FOLDER), _reports, facts), FOLDER)


def merge_results(before: Results, reports: list[pytest.TestReport], facts: Mapping[str, Any]) -> Results:
    """Return the results by test: new ones where a test ran, else those of before, else the reason of the skip."""
    results = dict(before)
    for report in reports:
        test = report.nodeid.partition("tests/gpu/")[2]
        if report.outcome != "skipped":
            figures = {name: value for name, value in report.user_properties if isinstance(value, int | float)}
            results[test] = {"outcome": report.outcome, "measured": figures, **facts}
        elif test not in results:
            results[test] = {"outcome": f"{NOT_RUN_YET}: {_reason(report)}", "measured": {}}
    return dict(sorted(results.items()))


def read_results(folder: Path) -> Results:
    """Return the results that the folder holds; none if no device has run the tests."""
    file = folder / "results.json"
    results: Results = json.loads(file.read_text()) if file.is_file() else {}
    return results


def write_results(results: Results, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (folder / "README.md").write_text(render_results(results))


def render_results(results: Results) -> str:
    """Return the page of the results, or one that says that there are none."""
    if not results:
        return f"{_HEAD}\nThese tests were {NOT_RUN_YET}: no machine with a device has run them.\n"
    rows = [_row(test, result) for test, result in results.items()]
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *rows]
    return _HEAD + "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(test: str, result: Mapping[str, Any]) -> tuple[str, ...]:
    measured = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in result["measured"].items())
    count = result.get("devices", 1)
    device = (f"{count} x " if count > 1 else "") + result.get("device", "")
    facts = (str(result.get(name, "")) for name in ("torch", "driver", "date"))
    return (f"`{test}`", result["outcome"], measured, device, *facts)


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
