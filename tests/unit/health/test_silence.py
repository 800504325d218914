"""No check excludes a rank or a step of a sound recording, and none warns of one.

`TRACEKIT_REAL_TRACES` names a folder of public traces, `TRACEKIT_PUBLIC_TRACES` one with clones of TraceLens and HTA.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.places import DATA, field_cases
from tracekit.errors import InputError, UsageError
from tracekit.health.rank_checks import RANK_CHECKS
from tracekit.health.run_checks import CLOCK_CHECKS, RUN_CHECKS
from tracekit.loading.load import load
from tracekit.loading.recording import recording_of
from tracekit.model.summary import RankSummary
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.read.decode.decoder import decode
from tracekit.read.files.storage import parse_path

IDS = {check.id for check in (*RANK_CHECKS, *RUN_CHECKS, *CLOCK_CHECKS)}
SPEAKS = {
    # Recorded without CUDA activity, or by CUPTI's range profiler, which gives no kernels.
    "distributed_info_unavailable/distributed_info_not_found.json.gz": {"no-device-records"},
    "mixed_files/rank_non_gpu.json.gz": {"no-device-records"},
    "rank_non_gpu/rank_non_gpu.json.gz": {"no-device-records"},
    "rank_unavailable/rank_not_found.json.gz": {"no-device-records"},
    "cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz": {"no-device-records"},
    "mtia_inference_trace/mtia_inference_rank_0.json.gz": {"other-device"},
    "mtia_trace_single_rank/mtia_rank_0.json.gz": {"other-device"},
    # ROCm: some kernels end 20 to 40 ms after the next one of their stream begins (TraceLens#669).
    "kernels-that-overlap-on-a-stream": {"overlapping"},
    # Put together by hand from two recordings: the step is of one, the operators are of another.
    "triton_example/triton_example.json.gz": {"out-of-range"},
}
"""The recordings that are not sound, and which checks must say so."""


def speaks(path: str) -> set[str]:
    """Return the checks that must say something of a file."""
    return next((ids for end, ids in SPEAKS.items() if end in path), set())


def is_launcher(summary: RankSummary) -> bool:
    """Return whether a file is of a process that does not train, beside those that do."""
    return summary.event_count < 10 and "launchers/" in summary.files[0]


def folders() -> list[Path]:
    """Return the folders of traces that there are here."""
    found = [DATA]
    if real := os.environ.get("TRACEKIT_REAL_TRACES"):
        found.append(Path(real))
    if cases := field_cases():
        found.append(cases)
    if public := os.environ.get("TRACEKIT_PUBLIC_TRACES"):
        found.append(Path(public))
    return [folder for folder in found if folder.is_dir()]


def files() -> list[Path]:
    paths = (path for folder in folders() for path in sorted(folder.rglob("*.json*")))
    return [path for path in paths if path.is_file() and "manifest" not in path.name]


def runs() -> list[Path]:
    """Return the folders with the files of one run, not of many single ranks."""
    return sorted({folder for path in files() if len([*(folder := path.parent).glob("*.json.gz")]) > 1})


def name(path: Path) -> str:
    return "/".join(path.parts[-3:])


@pytest.mark.parametrize("path", files(), ids=name)
def test_no_check_speaks_of_a_sound_recording(path: Path) -> None:
    try:
        recording = recording_of(decode(parse_path(str(path))), DEFAULT_RULES)
    except InputError:
        pytest.skip("no trace, or one without events")
    expected = speaks(str(path))
    warned = {note.id for note in recording.health.notes if note.severity != "info" and note.id in IDS}
    assert warned == expected
    excludes = any(check.scope == "rank" for check in RANK_CHECKS if check.id in expected) or "out-of-range" in expected
    assert (recording.health.excluded is not None) == excludes, recording.health.excluded
    told = any(note.id == "empty-step" for note in recording.health.notes)
    assert expected or np.count_nonzero(recording.health.masked) <= told


@pytest.mark.parametrize("folder", runs(), ids=name)
def test_no_check_excludes_a_rank_of_a_sound_run(folder: Path) -> None:
    try:
        run = load(folder, jobs=1)
    except (InputError, UsageError):
        pytest.skip("no run")
    for summary in run.ranks:
        assert summary.unmeasured is None or speaks(summary.files[0]) or is_launcher(summary), summary.unmeasured
