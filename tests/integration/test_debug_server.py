"""A running job, recorded for a moment through torch's debug server: nothing marks its steps."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.integration.recorded import Launch
from tracekit.api import analyze

WORKER = Path(__file__).with_name("debug_server_worker.py")
DURATION_S = 1.0
STEP_S = 0.050  # of the slow rank, at least
TIMEOUT_S = 60


def record(url: str, file: Path) -> None:
    request = Request(f"{url}/handler/torch_profile?duration={DURATION_S}", method="POST")
    with urlopen(request, timeout=TIMEOUT_S) as answer:
        file.write_bytes(answer.read())


def address(file: Path) -> str:
    until_s = time.monotonic() + TIMEOUT_S
    while not file.exists():
        assert time.monotonic() < until_s, f"no {file.name}"
        time.sleep(0.05)
    return file.read_text()


@pytest.mark.long  # half a minute, in which torch is imported anew
def test_the_slow_rank_of_a_job_that_is_recorded_on_demand(torchrun: Launch, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with ThreadPoolExecutor(3) as pool:
        job = pool.submit(torchrun, WORKER, tmp_path, anew=True)  # the profiler does not run in a fork
        try:
            urls = [address(tmp_path / f"url-{rank}") for rank in range(2)]
            files = [run / f"rank{rank}.json" for rank in range(2)]
            list(pool.map(record, urls, files))
        finally:
            (tmp_path / "done").touch()
        job.result()

    report = analyze(run)

    assert report.run.steps_from == ("optimizer",)
    assert len(report.run.common_steps()) == pytest.approx(DURATION_S / STEP_S, rel=0.5)
    assert (report.findings[0].id, report.findings[0].rank) == ("straggler", 1)
