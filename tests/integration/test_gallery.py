"""A run of the gallery that is made again has the numbers of the committed report."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, result_of
from tests.places import ROOT

REPORTS = ROOT / "reports"
COUNTED = "manual_data_parallel"  # its number is a count, the same on a busy machine


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(REPORTS))
    return next(entry for entry in importlib.import_module("gallery").GALLERY if entry.folder == COUNTED)


def test_a_report_that_is_made_again_has_the_number_of_the_committed_one(
    entry: Any, launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    start, *arguments = entry.command
    assert start == "torchrun"
    script = next(place for place, argument in enumerate(arguments) if argument.endswith(".py"))
    arguments[script] = str(ROOT / arguments[script])

    done = launch("-m", "torch.distributed.run", *arguments, "--device", "cpu", "--out", tmp_path / "run")

    assert done.returncode == 0, done.stderr
    committed = json.loads((REPORTS / COUNTED / "summary.json").read_text())
    again = result_of(tmp_path / "run")
    assert entry.planted.found(again).value == entry.planted.found(committed).value
    assert again["run"]["strategies"] == committed["run"]["strategies"]
