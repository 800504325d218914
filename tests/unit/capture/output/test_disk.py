"""The limits on disk space, and what a probe does when it reaches them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tracekit.capture import overhead, profiler_session
from tracekit.capture.hooks.patching import CaptureWarning
from tracekit.capture.output import paths as disk
from tracekit.capture.output.paths import MAX_BYTES, DiskBudget, disk_budget_from_environment
from tracekit.capture.probe import probe
from tracekit.errors import OutputError, UsageError


def test_written_files_count_towards_the_total() -> None:
    budget = DiskBudget(max_bytes=100)

    budget.check(100)
    budget.count_written(60)
    budget.check(40)
    with pytest.raises(OutputError, match="max_bytes=100"):
        budget.check(41)


def test_the_total_is_shared_by_all_probes_of_the_process() -> None:
    DiskBudget().count_written(60)

    with pytest.raises(OutputError, match="max_bytes=100"):
        DiskBudget(max_bytes=100).check(41)


def test_files_of_the_parent_do_not_count_in_a_forked_child() -> None:
    DiskBudget().count_written(60)

    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(OutputError):
            DiskBudget(max_bytes=100).check(100)
            code = 0
        os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_environment_overrides_and_invalid_values_are_reported_and_ignored() -> None:
    warned: list[str] = []
    environment = {"TRACEKIT_MAX_BYTES": "-1", "TRACEKIT_MIN_FREE_BYTES": "5"}

    budget = disk_budget_from_environment(DiskBudget(), environment, warned.append)

    assert (budget.max_bytes, budget.min_free_bytes) == (MAX_BYTES, 5)
    assert warned == ["TRACEKIT_MAX_BYTES='-1' is ignored: it is not a number of bytes"]


@pytest.mark.parametrize("option", ["max_bytes", "min_free_bytes"])
def test_a_value_that_is_no_number_of_bytes_raises(option: str) -> None:
    with pytest.raises(UsageError, match=option):
        probe(**{option: -1})


def test_windows_stop_at_the_total_and_earlier_ones_stay(
    runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overhead, "_MAX_NS", 0)  # else any window may be larger by a calibration
    options: dict[str, Any] = {"skip": 0, "warmup": 0, "steps": 1}
    some = probe(path=runs.path / "some", repeat=3, **options)(work)
    for _ in range(4):
        some()
        runs.wait()
    size = min(file.stat().st_size for file in runs.files() if file.name.endswith(".json.gz"))
    disk.reset_written()

    most = 2 * size + size // 2
    step = probe(path=runs.path / "many", repeat=9, max_bytes=most, **options)(work)

    def twelve_calls() -> list[float]:
        results = [step() for _ in range(12)]
        runs.wait()
        return results

    with pytest.warns(CaptureWarning, match="TRACEKIT_MAX_BYTES") as warned:
        assert twelve_calls() == [4.0] * 12

    assert len(warned) == 1
    written = sorted((runs.path / "many").rglob("*.json.gz"))
    assert 1 <= len(written) <= 2
    assert sum(path.stat().st_size for path in written) <= most
    assert [path.parent.name for path in written] == ["step-000000000", "step-000000001"][: len(written)]


@pytest.mark.parametrize("warmup", [0, 1])
def test_after_a_window_that_could_not_be_written_no_other_begins(
    torch: Any, runs: Any, work: Callable[[], float], tmp_path: Path, warmup: int
) -> None:
    (tmp_path / "file").touch()
    recorder = probe(path=tmp_path / "file/runs", skip=0, warmup=warmup, steps=1, repeat=3)
    step = recorder(work)

    with pytest.warns(CaptureWarning, match="nothing more is recorded") as warned:
        assert [step() for _ in range(9)] == [4.0] * 9

    assert len(warned) == 1
    assert not profiler_session._users
    assert not torch.autograd._profiler_enabled()
    recorder.finish()
