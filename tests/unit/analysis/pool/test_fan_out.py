"""A run gives the same bytes with any workers, and a killed worker loses only its rank."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen, run
from typing import Any

import fsspec
import pytest

import tracekit
from tests import mortal
from tests.builders import TraceBuilder, write_run
from tests.components import require_module
from tests.places import ROOT
from tracekit.analysis.loading import rank_reader
from tracekit.analysis.per_rank import summarize as summarizing
from tracekit.analysis.pool.dask_cluster import dask_cluster
from tracekit.errors import InputError, OutputError, UsageError
from tracekit.model.events import DecodedTrace
from tracekit.read.decode import decoder
from tracekit.render.json_result import JsonResult
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


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The scheduler of two Dask workers."""
    require_module("distributed")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.dask_cluster"]
    with Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        assert address.startswith("tcp://127.0.0.1:")
        yield address
        cluster.stdin.close()
        cluster.wait(60)


def tracekit_command(*arguments: str, without: str = "") -> CompletedProcess[str]:
    """Run the command in another process; its output is all that a user sees."""
    hide = f"import sys; sys.modules[{without!r}] = None; " if without else ""
    code = f"{hide}from tracekit.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def plain(folder: Path) -> str:
    return JsonResult().render(tracekit.analyze(folder))


# ---- the same bytes ----------------------------------------------------------------------------------------------


def test_process_and_thread_executors_give_the_same_result(folder: Path) -> None:
    with ThreadPoolExecutor(3) as threads:
        assert JsonResult().render(tracekit.analyze(folder, executor=threads)) == plain(folder)
    assert JsonResult().render(tracekit.analyze(tracekit.load(folder, jobs=2))) == plain(folder)


def test_a_run_in_an_object_store(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    try:
        memory.put(f"{folder}/", "/fan_out/", recursive=True)
        with ThreadPoolExecutor(3) as threads:
            there = JsonResult().render(tracekit.analyze("memory://fan_out", executor=threads))
        assert there.replace("memory://fan_out", str(folder)) == plain(folder)
    finally:
        memory.rm("/fan_out", recursive=True)


def test_on_a_cluster(folder: Path, address: str) -> None:
    """The command writes the same result, and nothing of Dask's."""
    command = tracekit_command("analyze", str(folder), "--json", "--scheduler", address)
    assert (command.stdout, command.stderr, command.returncode) == (plain(folder), "", 0)


def test_a_cluster_from_another_folder(folder: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run in another folder: a relative path is resolved here."""
    monkeypatch.chdir(folder)
    seen: list[tuple[int, int]] = []
    with dask_cluster(address) as cluster:
        run = tracekit.load("rank*.json.gz", executor=cluster, progress=lambda *now: seen.append(now))
    assert len(run.ranks) == RANKS
    assert seen == [(n, RANKS) for n in range(RANKS + 1)]


def test_a_cluster_follows_the_limits_of_the_command(folder: Path, address: str) -> None:
    """GIVEN a limit that each file reaches THEN its workers, which were started without one, stop there too."""
    command = ["analyze", str(folder), "--json", "--limit", "text_bytes=1K"]
    here = tracekit_command(*command)
    assert here.stdout.count("text_bytes=1024") == RANKS
    assert tracekit_command(*command, "--scheduler", address).stdout == here.stdout


def test_other_commands_read_on_a_cluster(folder: Path, address: str, tmp_path: Path) -> None:
    for arguments in (["info"], ["whatif"], ["merge", "-o", str(tmp_path / "run.pftrace")]):
        command = tracekit_command(arguments[0], str(folder), *arguments[1:], "--scheduler", address)
        assert (command.stderr, command.returncode) == ("", 0)
    assert (tmp_path / "run.pftrace").stat().st_size > 0


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
    assert (run.notes[0].kind, run.notes[0].rank, run.notes[0].is_defect) == ("worker_died", 1, True)
    result = json.loads(JsonResult().render(tracekit.analyze(run)))
    assert [row["rank"] for row in result["ranks"]] == [0, 2, 3, 4, 5]


@pytest.mark.usefixtures("killed")
def test_a_killed_cluster_worker_loses_only_its_rank(folder: Path, address: str) -> None:
    with dask_cluster(address) as cluster:
        run = tracekit.load(folder, executor=cluster)
    assert [summary.rank for summary in run.ranks] == [0, 2, 3, 4, 5]
    assert tuple(note.text for note in run.notes) == LOST


@pytest.mark.usefixtures("killed")
def test_a_run_without_any_usable_rank_is_an_error(folder: Path) -> None:
    left = r"no trace in it can be used \(rank 1: .* died, twice"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(InputError, match=left):
        tracekit.load(folder / "rank1.json.gz", executor=pool)


def test_a_rank_too_large_for_memory_loses_only_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(path: Path, **how: Any) -> DecodedTrace:
        if path.name == "rank1.json.gz":
            raise MemoryError
        return decoder.decode(path, **how)

    monkeypatch.setattr(summarizing, "decode", decode)
    run = tracekit.load(folder, jobs=1)
    assert run.missing_ranks == (1,)
    assert run.notes[0].kind == "limit"
    assert run.notes[0].text.startswith("rank 1: rank1.json.gz: reading it takes more memory than there is")


def test_a_merge_that_loses_a_rank_fails(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tracekit.load(folder, ranks=range(2))
    monkeypatch.setattr(merging, "_write_part", mortal.die)
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
from tracekit.analysis.loading import rank_reader
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


# ---- no cluster --------------------------------------------------------------------------------------------------


def test_an_address_that_nobody_answers(folder: Path) -> None:
    require_module("distributed")
    command = tracekit_command("analyze", str(folder), "--scheduler", "tcp://127.0.0.1:9")
    assert command.returncode == 3
    assert command.stderr == (
        "Error: --scheduler tcp://127.0.0.1:9: no Dask scheduler answers there. "
        "Hint: leave out --scheduler, or start one with: dask scheduler\n"
    )


def test_without_dask(folder: Path) -> None:
    command = tracekit_command("analyze", str(folder), "--scheduler", "tcp://127.0.0.1:9", without="distributed")
    assert command.returncode == 2
    assert command.stderr == (
        "Error: --scheduler needs the package distributed. Hint: pip install 'torch-tracekit[dask]'\n"
    )


@pytest.mark.parametrize(
    "address_text", ["nonsense", "127.0.0.1:8786", "http://127.0.0.1:8786", "tcp://host", "tcp://:"]
)
def test_text_that_is_no_address(address_text: str) -> None:
    require_module("distributed")
    with pytest.raises(UsageError, match="no address of a scheduler"), dask_cluster(address_text):
        pass


def test_jobs_and_a_cluster_contradict_each_other(folder: Path) -> None:
    command = tracekit_command("analyze", str(folder), "--scheduler", "tcp://127.0.0.1:9", "--jobs", "2")
    assert (command.returncode, command.stderr.count("\n")) == (2, 1)
    assert command.stderr.startswith("Error: --jobs is for this machine, --scheduler for a cluster.")
