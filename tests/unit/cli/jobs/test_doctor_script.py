"""What `doctor SCRIPT` says of a recording that it has made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu_jobs import JobSpec, simulate
from tracekit.cli.jobs import doctor_script


def test_sharded_modules_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """GIVEN a recording of three FSDP units WHEN the page is drawn THEN it names them, though it analyses little."""
    monkeypatch.setattr(doctor_script, "recorded_activities", lambda: ())
    folder = simulate(JobSpec(family="fsdp", dp=2, layers=3, steps=2)).write(tmp_path)
    doctor_script._report(folder, "train.py", ended_early=False, late=0)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "sharded" in line]
    assert line.split() == ["modules", "3", "whose", "parameters", "or", "gradients", "are", "sharded"]
