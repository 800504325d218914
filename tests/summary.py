"""What the end of a test run says besides failures: jobs that were run again, and tests that had no traces to read."""

from __future__ import annotations

import pytest

from tests.components import REAL_TRACES

JOBS_RUN_AGAIN = pytest.StashKey[list[str]]()
HOW_TO_GET_THEM = "tests/data/README.md says where they are from; name their folder in TRACEKIT_REAL_TRACES."
_KEY = "jobs_run_again"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[JOBS_RUN_AGAIN] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # of a worker of pytest-xdist, read by the process below
    if output is not None:
        output[_KEY] = session.config.stash[JOBS_RUN_AGAIN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: pytest.Item) -> None:
    node.config.stash[JOBS_RUN_AGAIN] += getattr(node, "workeroutput", {}).get(_KEY, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    again = config.stash[JOBS_RUN_AGAIN]
    terminalreporter.write_line(f"Jobs that Gloo aborted at their exit, and that were run again: {len(again)}")
    for job in again:
        terminalreporter.write_line(f"  {job}")
    skipped = terminalreporter.stats.get("skipped", [])
    unread = [report for report in skipped if f"needs {REAL_TRACES}" in str(report.longrepr)]
    if unread:
        terminalreporter.write_line(f"NOT RUN: {len(unread)} tests of public traces. {HOW_TO_GET_THEM}", yellow=True)
