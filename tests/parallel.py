"""Tests in several processes: which of them stay together, and which have the machine to themselves.

A file is a unit of work, for the fixtures of a module are expensive: a job of several ranks that is recorded once.
Where a fixture has parameters, each of them is a unit. Tests marked `alone` measure times: they come first, and while
one of them runs no other process runs a test.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# There are as many processes as processors: more threads of torch, which wait for each other within each operator, only
# hold up other processes. torch reads this when it is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files whose tests all take one fixture of the module, which makes a job for each of its parameters. Tests of values
# share nothing, and come last: as a unit they would leave one process with nothing to do.
A_UNIT_PER_PARAMETER = ("tests/integration/test_probes.py", "tests/values/test_values.py")


class UnitsOfWork(LoadScopeScheduling):
    """Hands out whole files, or all tests of one parameter, in the order of their collection."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if file in A_UNIT_PER_PARAMETER:
            return f"{file}[{test.partition('[')[2]}"
        return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitsOfWork:
    config.option.loadscopereorder = False
    return UnitsOfWork(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not is_alone(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    if not hasattr(item.config, "workerinput"):  # the only process of this run
        return (yield)
    folder_of_run = Path(item.config.getoption("basetemp")).parent  # pytest-xdist gives each worker one below it
    with machine(folder_of_run, alone=is_alone(item)):
        return (yield)


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@contextmanager
def machine(folder: Path, *, alone: bool) -> Iterator[None]:
    """Share the machine with the processes that name the same folder, or have it `alone`.

    Whoever waits for it holds the queue, so that no other process starts one more test before.
    """
    with (folder / "machine-queue").open("w") as queue, (folder / "machine").open("w") as use:
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(use, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(use, fcntl.LOCK_UN)  # closing is not enough: a child that was forked may hold it open
