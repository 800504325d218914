"""A run that is analysed again has the same result, from the cached summaries of its ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_jobs import Defect, JobSpec, simulate
from tests.builders import TraceBuilder
from tracekit.errors import InputError
from tracekit.loading import summarize
from tracekit.loading.load import load
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.model.run import Run
from tracekit.rank.communication_rules import CommunicationRule
from tracekit.read.cache import store as cache_module
from tracekit.read.cache.cache_dir import CACHE_FOLDER
from tracekit.render.json_result import result_json
from tracekit.report.report import analyze

OPTIONS = {
    "steps": StepSelection(first=1),
    "rules": (CommunicationRule("gemm", "all_reduce"),),
    "step_anchor": "^loop$",
}
"""A value other than the default for every option that a summary depends on."""
BY_LOAD = {"settled", "without", "pseudonyms", "first_step"}
"""Options that `load` sets: tested by `test_a_step_that_is_left_out_...`, `test_an_anonymised_run_is_not_cached`, and
test_step_numbers.py.
"""


@pytest.fixture(autouse=True)
def _beside_the_traces_a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEKIT_CACHE")
    monkeypatch.setattr(cache_module, "is_of_probe", lambda file: True)
    monkeypatch.setattr(cache_module, "_now_ns", lambda: time.time_ns() + 60 * 10**9)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are decoded from now on."""
    names: list[str] = []
    decode = summarize.decode

    def noted(path: Path, **how: Any) -> Any:
        names.append(path.name)
        return decode(path, **how)

    monkeypatch.setattr(summarize, "decode", noted)
    return names


def cluster(folder: Path, ranks: int = 2) -> Path:
    """Write traces of ranks of which the last one is slower."""
    slow = Defect(cause="compute", ranks=(ranks - 1,), delay_us=500)
    return simulate(JobSpec(family="ddp", dp=ranks, layers=2, buckets=1, steps=3, defect=slow)).write(folder)


def json_of(folder: Path, **how: Any) -> str:
    return result_json(analyze(load(folder, **how)))


def json_of_sections(run: Run) -> str:
    return result_json(analyze(run, only=run.sections))


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.summary"))


# ---- the same result ---------------------------------------------------------------------------------------------


def test_a_second_analysis_decodes_nothing(tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cluster(tmp_path)
    without = json_of(folder)
    first = json_of(folder, cache=True)
    read.clear()

    assert json_of(folder, cache=True) == first == without
    assert read == []
    assert len(entries(folder)) == 2


@pytest.mark.parametrize("name", ["dlrm_8xV100", "gloo_rank34_of_300"])
def test_real_traces(real_traces: Path, tmp_path: Path, name: str, read: list[str]) -> None:
    first = json_of(real_traces / name, cache=tmp_path)
    read.clear()
    assert json_of(real_traces / name, cache=tmp_path) == first
    assert read == []


def test_workers_store_their_summaries(tmp_path: Path, read: list[str]) -> None:
    """Workers have other clocks: the parent decides whether a file is old enough."""
    folder = cluster(tmp_path)
    first = json_of(folder, cache=True, jobs=2)
    assert json_of(folder, cache=True, jobs=2) == first
    assert read == []
    assert len(entries(folder)) == 2


def test_file_names_that_are_no_text_are_not_cached(tmp_path: Path, read: list[str]) -> None:
    folder = cluster(tmp_path / "run")
    trace = folder / "rank0.json.gz"
    trace.rename(folder / os.fsdecode(b"rank0-\xff.json.gz"))
    first = load(folder, cache=True).ranks
    read.clear()
    assert load(folder, cache=True).ranks == first
    assert [os.fsencode(name) for name in read] == [b"rank0-\xff.json.gz"]


# ---- what is made again ------------------------------------------------------------------------------------------


def test_only_the_changed_rank_is_decoded_again(tmp_path: Path, read: list[str]) -> None:
    folder = cluster(tmp_path, ranks=3)
    json_of(folder, cache=True)
    read.clear()
    paths = sorted(folder.glob("*.json*"))
    before = paths[1].stat().st_ctime_ns
    while paths[1].stat().st_ctime_ns == before:
        os.utime(paths[1])
    done: list[tuple[int, int]] = []
    load(folder, cache=True, progress=lambda number, of: done.append((number, of)))
    assert read == [paths[1].name]
    assert done == [(0, 1), (1, 1)]


@pytest.mark.parametrize("option", sorted({field.name for field in fields(SummaryOptions)} - {"sections"} - BY_LOAD))
def test_every_option_is_part_of_the_key(tmp_path: Path, read: list[str], option: str) -> None:
    folder = cluster(tmp_path)
    changed = replace(SummaryOptions(), **{option: OPTIONS[option]})
    load(folder, cache=True)
    read.clear()
    run = load(folder, cache=True, options=changed)
    assert len(read) == 2
    assert load(folder, options=changed).ranks == run.ranks


def test_an_anonymised_run_is_not_cached(tmp_path: Path, read: list[str]) -> None:
    folder = cluster(tmp_path)
    anonymous = load(folder, cache=True, anonymize=True)
    assert len(read) == 2
    recorded = load(folder, cache=True)
    assert len(read) == 4
    assert load(folder, cache=True, anonymize=True).paths == anonymous.paths != recorded.paths
    assert len(read) == 6


def test_a_step_that_is_left_out_is_part_of_the_key(tmp_path: Path, read: list[str]) -> None:
    """GIVEN four steps, of which the first takes three times as long THEN with it, summaries are others."""
    begins_us = (0, 300, 400, 500)
    for rank in range(2):
        trace = TraceBuilder(rank, 2)
        for number, begin_us in enumerate(begins_us):
            trace.step(number, begin_us, 100 if number else 300).op("aten::mm", begin_us + 1, 50)
        trace.write(tmp_path / f"rank{rank}.json.gz")
    settled = load(tmp_path, cache=True)
    assert [step.step for step in settled.left_out] == [0]
    read.clear()
    whole = load(tmp_path, cache=True, options=SummaryOptions(steps=StepSelection(first=0)))
    assert len(read) == 2
    assert whole.left_out == ()
    read.clear()
    assert load(tmp_path, cache=True).ranks == settled.ranks
    assert read == []


def test_a_summary_for_all_sections_serves_any_sections(tmp_path: Path, read: list[str]) -> None:
    folder, one_section = cluster(tmp_path), SummaryOptions(sections=frozenset({"breakdown"}))
    load(folder, cache=True)
    read.clear()
    served = json_of_sections(load(folder, cache=True, options=one_section))
    assert read == []
    assert served == json_of_sections(load(folder, options=one_section))


def test_a_summary_for_some_sections_serves_no_others(tmp_path: Path, read: list[str]) -> None:
    folder, one_section = cluster(tmp_path), SummaryOptions(sections=frozenset({"breakdown"}))
    load(folder, cache=True, options=one_section)
    read.clear()
    load(folder, cache=True, options=one_section)
    assert read == []
    load(folder, cache=True)
    assert len(read) == 2


def test_the_rank_from_discovery_is_part_of_the_key(tmp_path: Path, read: list[str]) -> None:
    """The rank of files that do not name it depends on their order."""

    def add(name: str) -> None:
        trace = TraceBuilder()
        del trace.header["distributedInfo"]
        trace.step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / name)

    add("b.json")
    assert [summary.rank for summary in load(tmp_path, cache=True).ranks] == [0]
    add("a.json")
    ranks = {Path(summary.files[0]).name: summary.rank for summary in load(tmp_path, cache=True).ranks}
    assert ranks == {Path(summary.files[0]).name: summary.rank for summary in load(tmp_path).ranks}


def test_a_rank_that_failed_by_a_bug_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cluster(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(summarize, "recording_of", None)
        with pytest.raises(Exception, match="a bug in tracekit"):
            load(folder, cache=True)
    assert entries(folder) == []
    assert len(load(folder, cache=True).ranks) == 2


def test_a_rank_with_a_window_left_out_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that its file needs may be installed next time."""
    for first in (0, 10):
        trace = TraceBuilder(0, 1).step(first, 100 * first, 100).kernel("k", 100 * first, 5, launched_at=100 * first)
        trace.write(tmp_path / f"node0_0.{first}.pt.trace.json")
    decode = summarize.decode

    def without_zstd(path: Path, **how: Any) -> Any:
        if ".10." in path.name:
            raise InputError(f"{path}: packed with zstd", hint="pip install zstandard")
        return decode(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(summarize, "decode", without_zstd)
        (rank,) = load(tmp_path, cache=True).ranks
        assert [step.step for step in rank.steps] == [0]
    assert entries(tmp_path) == []
    (rank,) = load(tmp_path, cache=True).ranks
    assert [step.step for step in rank.steps] == [0, 10]
    assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 999)])
def test_a_damaged_entry_is_replaced(tmp_path: Path, read: list[str], damage: Callable[[Path], None]) -> None:
    folder = cluster(tmp_path)
    first = json_of(folder, cache=True)
    damage(entries(folder)[0])
    read.clear()
    assert json_of(folder, cache=True) == first
    assert len(read) == 1
    read.clear()
    assert json_of(folder, cache=True) == first
    assert read == []


# ---- several processes -------------------------------------------------------------------------------------------

_READER = """
import random, sys, time
from pathlib import Path
from tracekit.loading.load import load
from tracekit.report.report import analyze
from tracekit.read.cache import store
from tracekit.read.cache.cache_dir import CACHE_FOLDER
from tracekit.render.json_result import result_json

store.is_of_probe = lambda file: True
store._now_ns = lambda: time.time_ns() + 60 * 10**9
folder, seed, expected = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).read_text()
random.seed(seed)
for _ in range(10):
    if result_json(analyze(load(folder, cache=True))) != expected:
        sys.exit(f"process {seed}: another result")
    for entry in sorted((folder / CACHE_FOLDER).glob("*-*")):
        if random.random() < 0.3:
            entry.unlink(missing_ok=True)
        elif random.random() < 0.3:
            entry.write_bytes(b"torn")
"""


def test_concurrent_readers_writers_and_damage_give_the_right_result(tmp_path: Path) -> None:
    folder = cluster(tmp_path / "run", ranks=3)
    expected = tmp_path / "expected.json"
    expected.write_text(json_of(folder))
    readers = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", _READER, str(folder), str(seed), str(expected)])
        for seed in range(3)
    ]
    assert [reader.wait() for reader in readers] == [0, 0, 0]
    assert list((folder / CACHE_FOLDER).glob("*.tmp")) == []
