"""A run gives the same bytes with any workers, and a killed worker loses only its rank."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import fsspec
import pytest

import tracekit
from tests import mortal
from tests.builders import TraceBuilder, write_run
from tests.places import ROOT
from tracekit.errors import InputError, OutputError
from tracekit.loading import rank_reader
from tracekit.loading import summarize as summarizing
from tracekit.model.events import DecodedTrace
from tracekit.read.decode import decoder
from tracekit.render.json_result import result_json
from tracekit.render.merged import merge as merging

RANKS = 6
LOST = (
    "rank 1: rank1.json.gz: the worker that read it died, twice; left out (out of memory? try --jobs 1)",
    "5 of 6 ranks; missing: 1",
)


def gpu_rank(rank: int) -> TraceBuilder:
    """Three steps of 100 us: compute, longer on higher ranks, then an all-reduce that ends at 100 on every rank."""
    trace = TraceBuilder(rank, RANKS)
    for k in range(3):
        begin, compute_us = 100 * k, 50 + 3 * rank
        trace.step(k, begin, 100).kernel("gemm", begin, compute_us, launched_at=begin)
        trace.nccl("all_reduce", begin + compute_us, 100 - compute_us, launched_at=begin + 1)
    return trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"), [gpu_rank(rank) for rank in range(RANKS)])


def plain(folder: Path) -> str:
    return result_json(tracekit.analyze(folder))


# ---- the same bytes ----------------------------------------------------------------------------------------------


def test_worker_processes_give_the_same_result(folder: Path) -> None:
    assert result_json(tracekit.analyze(tracekit.load(folder, jobs=2))) == plain(folder)


def test_a_run_in_an_object_store(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    try:
        memory.put(f"{folder}/", "/fan_out/", recursive=True)
        there = result_json(tracekit.analyze("memory://fan_out"))
        assert there.replace("memory://fan_out", str(folder)) == plain(folder)
    finally:
        memory.rm("/fan_out", recursive=True)


# ---- the killed --------------------------------------------------------------------------------------------------


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that reads rank 1 is killed, as by the kernel when memory runs out."""
    monkeypatch.setattr(rank_reader, "summarize_and_store", mortal.summarize_and_store)


@pytest.mark.usefixtures("killed")
def test_a_killed_process_loses_only_its_rank(folder: Path) -> None:
    run = tracekit.load(folder, jobs=2)
    assert [summary.rank for summary in run.ranks] == [0, 2, 3, 4, 5]
    assert run.missing_ranks == (1,)
    assert tuple(note.text for note in run.notes) == LOST
    assert (run.notes[0].id, run.notes[0].rank, run.notes[0].is_defect) == ("worker-died", 1, True)
    result = json.loads(result_json(tracekit.analyze(run)))
    assert [row["rank"] for row in result["ranks"]] == [0, 2, 3, 4, 5]


def test_a_run_without_any_usable_rank_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_reader, "summarize_and_store", mortal.die)
    with pytest.raises(InputError, match=r"no trace in it can be used \(rank 0: .* died, twice"):
        tracekit.load(folder, ranks=range(2), jobs=2)


def test_a_rank_too_large_for_memory_loses_only_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(path: Path, **how: Any) -> DecodedTrace:
        if path.name == "rank1.json.gz":
            raise MemoryError
        return decoder.decode(path, **how)

    monkeypatch.setattr(summarizing, "decode", decode)
    run = tracekit.load(folder, jobs=1)
    assert run.missing_ranks == (1,)
    assert run.notes[0].id == "limit"
    assert run.notes[0].text.startswith("rank 1: rank1.json.gz: reading it takes more memory than there is")


def test_a_merge_that_loses_a_rank_fails(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tracekit.load(folder, ranks=range(2))
    monkeypatch.setattr(merging, "_write_page_file", mortal.die)
    with pytest.raises(OutputError, match="rank 0: the worker that wrote it died, twice"):
        tracekit.merge(run, tmp_path / "run.pftrace", jobs=2)
    assert list(tmp_path.iterdir()) == []


def kill_group(group: Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group.pid, signal.SIGKILL)


@pytest.mark.parametrize("busy", ["at their ranks", "importing"])
def test_ctrl_c_prints_one_word(folder: Path, tmp_path: Path, busy: str) -> None:
    """GIVEN a terminal's Ctrl-C, sent to all processes, WHEN workers are busy THEN none of them shows a traceback."""
    fifo = tmp_path / "busy"
    os.mkfifo(fifo)
    code = f"""
from pathlib import Path
from tests import mortal
from tracekit import cli
from tracekit.loading import rank_reader
if __name__ == "__main__":
    rank_reader.summarize_and_store = mortal.wait_for({str(fifo)!r})
    cli.main()
elif {busy!r} == "importing":
    mortal.wait_for({str(fifo)!r})()
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, str(script), "analyze", str(folder), "--jobs", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (
        fifo.open("r+b", buffering=0) as words,
        Popen(
            command,
            env=environment,
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            start_new_session=True,
            # Whoever was started in the background may have been told to ignore it, and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as group,
        ExitStack() as at_the_end,
    ):
        at_the_end.callback(kill_group, group)
        message = ""
        while len(message) < len("herehere"):  # both workers are there
            assert select.select([words], [], [], 60)[0], f"no worker came to its rank in a minute: {message!r}"
            message += words.read(1).decode()
        os.killpg(group.pid, signal.SIGINT)
        output, errors = group.communicate(timeout=60)
    assert (output, errors, group.returncode) == ("", "Interrupted.\n", 130)
