"""A recording says the same without its marks of steps: its first finding, whom that is about, and the median step."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.places import DATA, ROOT, field_cases
from tracekit.explain.step_time.step_lengths import step_lengths
from tracekit.loading.load import load
from tracekit.report.report import Report, analyze

EXCEPTIONS = {
    "cpu_memory": "neither an optimizer nor communication",
    "dlrm_8xV100": "a single step: its optimizer ends once",
    "fsdp2_2_tk_host": "three of four steps, which take 181 to 199 ms: the median is another step's",
    "single_tk": "three of four steps, which take 78 to 89 ms: the median is another step's",
    "launches-that-block/run": "made without an optimizer and a backward pass",
    "inf-in-arguments/run": "a number that is no JSON",
    "phases": "both ranks load as long: which loads longest is another one",
    "elastic": "what it says of restarts needs the steps of its attempts",
    "slow_server": "remote calls: without steps, nothing tells a trainer from a server",
    "slow_trainer": "likewise",
}


def recordings() -> dict[str, Path]:
    """Return the runs that are at hand: committed, of users, public, of the gallery."""
    found = {path.name: path for path in sorted(DATA.glob("*/"))}
    found |= {path.name: path for path in sorted((ROOT / "build" / "reports").glob("*/"))}
    if cases := field_cases():
        found |= {f"{path.parent.name}/{path.name}": path for path in sorted(cases.glob("*/*/"))}
    if traces := os.environ.get("TRACEKIT_REAL_TRACES"):
        public = [*Path(traces).glob("h200_shared/*/"), *Path(traces).glob("single_rank/[am]*.gz")]
        public += [Path(traces) / name for name in ("dlrm_8xV100", "gloo_rank34_of_300", "two_of_128")]
        found |= {path.name: path for path in sorted(public)}
    return found


def without_marks(run: Path, out: Path) -> Path:
    """Write the traces of a run without `ProfilerStep` and without the steps of the probe's metadata."""
    files = [run] if run.is_file() else [file for file in run.rglob("*.json*") if "manifest" not in file.name]
    for file in files:
        packed = file.read_bytes()
        trace = json.loads(gzip.decompress(packed) if file.suffix == ".gz" else packed)
        for event in trace["traceEvents"]:
            if str(event.get("name")).startswith("ProfilerStep"):
                event["name"] = "span"
        if "tracekit" in trace:
            trace["tracekit"]["steps"] = []
        target = out / (file.name if run.is_file() else file.relative_to(run))
        target.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(trace).encode()
        target.write_bytes(gzip.compress(text, 1) if file.suffix == ".gz" else text)
    return out


def test_categories_of_torch_1_8_say_the_same_as_those_of_today() -> None:
    case = (field_cases() or Path()) / "steps-of-torch-1.8-as-operators"
    if not case.is_dir():
        pytest.skip("needs the traces of users: TRACEKIT_FIELD_CASES")
    legacy, today = (analyze(load(case / name)) for name in ("legacy", "same_in_new_categories"))

    assert legacy.run.steps_from == ("spans",)
    assert [(each.id, each.text, each.saving_ns) for each in legacy.findings] == [
        (each.id, each.text, each.saving_ns) for each in today.findings
    ]
    assert "longest in Python" in legacy.findings[0].text


def first_finding(report: Report) -> tuple[str, tuple[int, ...], int | None]:
    first = report.findings[0]
    return first.id, first.ranks, first.rank


@pytest.mark.parametrize("name", [name for name in recordings() if name not in EXCEPTIONS])
def test_a_recording_says_the_same_without_its_marks(tmp_path: Path, name: str) -> None:
    marked = analyze(load(recordings()[name]))
    report = analyze(load(without_marks(recordings()[name], tmp_path / "run")))

    assert "recording" not in report.run.steps_from
    assert first_finding(report) == first_finding(marked)
    lengths, expected = step_lengths(report.run), step_lengths(marked.run)
    assert lengths is not None
    assert expected is not None
    assert lengths.median_ns == pytest.approx(expected.median_ns, rel=0.02)
