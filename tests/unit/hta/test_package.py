"""Without HTA a command says in one line how to get it; with it, its settings are put back."""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path

import pytest

import tracekit
from tests.gpu_steps import gpu_steps
from tracekit.errors import UsageError
from tracekit.hta.package import ROUNDING_VARIABLE, quiet, rounding


def test_a_missing_package_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tracekit.load(gpu_steps().write(tmp_path / "rank0.json"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="not installed") as raised:
        tracekit.to_hta(run)
    assert raised.value.hint == "install it with: pip install 'torch-tracekit[hta]'"


@pytest.mark.parametrize("before", [None, "0", "1"])
def test_rounding_is_set_for_a_block(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv(ROUNDING_VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(ROUNDING_VARIABLE, before)
    for enabled, expected in ((True, "0"), (False, "1")):
        with rounding(enabled=enabled):
            assert os.environ[ROUNDING_VARIABLE] == expected
    assert os.environ.get(ROUNDING_VARIABLE) == before


def test_logging_is_as_before_when_a_quiet_block_ends(caplog: pytest.LogCaptureFixture) -> None:
    with quiet():
        logging.getLogger("hta").error("unheard")
    logging.getLogger("hta").error("heard")
    assert [record.message for record in caplog.records] == ["heard"]
