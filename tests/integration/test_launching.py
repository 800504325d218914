"""How these tests run their jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import ABORTED_AT_EXIT
from tests.integration.recorded import Launch
from tests.summary import JOBS_RUN_AGAIN

ABORTS_ONCE = f"""
import os, sys, uuid
from pathlib import Path
out, tried = Path(sys.argv[1]), Path(sys.argv[2])
(out / "runs").mkdir(exist_ok=True)
(out / "runs" / uuid.uuid4().hex).touch()
if not tried.exists():
    tried.touch()
    sys.exit("{ABORTED_AT_EXIT}")
"""


def test_a_job_that_aborted_at_its_exit_is_run_again_and_leaves_one_recording(
    torchrun: Launch, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(ABORTS_ONCE)
    out.mkdir()
    (out / "kept").touch()

    torchrun(script, out, str(tmp_path / "tried"), ranks=1)

    assert pytestconfig.stash[JOBS_RUN_AGAIN].pop().startswith(str(script))  # counted, though not this one

    assert (tmp_path / "tried").exists()
    assert (out / "kept").exists()
    assert len(list((out / "runs").iterdir())) == 1
