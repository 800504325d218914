"""Every probe of `probes/`, run by the command that its docstring gives and analysed as a user would: what training it
is, who talks to whom, in which units, and the defect that it plants.

The commands are those of `probe_commands.py`. A probe that another file of tests names has its tests there: that of
meshes in test_hybrid_capture.py, that of elastic jobs in test_elastic.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.integration.probe_commands import COMMANDS, Probe, Result
from tests.integration.recorded import Launch, notes_of, result_of
from tests.places import PROBE_PARTS, PROBES


@dataclass(frozen=True, kw_only=True)
class Finished:
    probe: Probe
    out: Path
    printed: str
    result: Result


# What they measure of the planted delay is compared with it.
ALONE = ("pipeline", "straggler")
# At every change the first command of each probe.
FIRST = {probe.name: probe for probe in reversed(COMMANDS)}.values()
PARAMETERS = [
    pytest.param(
        probe,
        id="-".join([probe.name, *probe.arguments[1:2]]),
        marks=[pytest.mark.alone] * (probe.name in ALONE) + [pytest.mark.long] * (probe not in FIRST),
    )
    for probe in COMMANDS
]


@pytest.fixture(scope="module", params=PARAMETERS)
def finished(
    request: pytest.FixtureRequest, torchrun: Launch, launch_forked: Launch, tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    probe: Probe = request.param
    out = tmp_path_factory.mktemp(probe.name) / "run"
    start = torchrun if probe.under_torchrun else partial(launch_forked, ranks=0)
    # On a host with GPUs as well: what is expected is what Gloo records.
    done = start(PROBES / f"{probe.name}.py", *probe.arguments, "--device", "cpu", "--out", out)
    assert done.returncode == 0, done.stderr
    return Finished(probe=probe, out=out, printed=done.stdout, result=result_of(out))


def test_every_probe_is_tested() -> None:
    scripts = {script.stem for script in PROBES.glob("*.py")} - PROBE_PARTS
    here = Path(__file__)
    others = [file.read_text() for file in here.parent.glob("test_*.py") if file != here]
    tested_elsewhere = {name for text in others for name in re.findall(r'\bPROBES / "(\w+)\.py"', text)}
    assert scripts == {probe.name for probe in COMMANDS} | tested_elsewhere


def test_strategies_groups_and_units_are_named(finished: Finished) -> None:
    probe, result = finished.probe, finished.result
    assert result["run"]["strategies"] == list(probe.strategies)
    used = {row["group"] for row in result["communication"]}
    groups = [(group["parallelism"], group["ranks"]) for group in result["groups"] if group["id"] in used]
    assert groups == list(probe.groups)
    assert probe.units(result) == probe.expected


def test_everything_recorded_is_joined_to_its_event_or_its_counterpart(finished: Finished) -> None:
    rows, expected = finished.result["joins"], finished.probe.collectives
    assert [row["rank"] for row in rows] == finished.result["run"]["ranks"]
    for row in rows:
        assert row["joined"] == row["collectives"]
        assert row["collectives"] == expected or (expected is None and row["collectives"] > 0)
    for edge in finished.result["point_to_point"]:
        assert edge["sends"] == edge["receives"] == edge["joined"] > 0


def test_nothing_had_to_be_noted(finished: Finished) -> None:
    notes = notes_of(finished.result, "unlinked", "capture", "missing-rank", "not-available")
    assert len(notes) == len(finished.probe.noted)
    for note, part in zip(notes, finished.probe.noted, strict=True):
        assert part in note


def test_every_bucket_is_reduced_once_a_step_and_in_order(finished: Finished) -> None:
    reduced = finished.result["buckets"]
    steps = sum(row["steps"] for row in finished.result["ranks"])
    assert len(reduced) == steps * len(finished.result["bucket_map"])
    for row in reduced:
        assert row["ready_ns"] <= row["launch_ns"] <= row["start_ns"] <= row["end_ns"]


def test_communication_that_blocks_overlaps_with_nothing(finished: Finished) -> None:
    if finished.probe.blocks:
        ranks = finished.result["ranks"]
        # On a busy machine a waiting thread goes on a moment before the thread of Gloo that woke it. What overlaps as
        # it was meant to is over a tenth.
        assert sum(row["overlapped_comm_ns"] for row in ranks) <= 0.05 * sum(row["comm_ns"] for row in ranks)


def test_a_replay_takes_as_long_as_the_steps_did(finished: Finished) -> None:
    found = finished.result["whatif"]
    assert found is not None
    # One that orders operations wrongly is off by tens of percent; a busy machine, by some.
    assert abs(found["replay_error"]) < 0.1


def test_the_planted_defect_is_found(finished: Finished) -> None:
    finished.probe.planted(finished.result, finished.out)


def test_the_next_command_is_the_last_word(finished: Finished) -> None:
    assert finished.printed.rstrip().endswith(f"Next: tracekit analyze {finished.out}")


@pytest.mark.long  # half a minute, in which torch is imported anew
def test_the_process_group_is_gone_before_the_interpreter_is(torchrun: Launch, tmp_path: Path) -> None:
    """GIVEN a model under DDP whose recomputation raises exceptions in recorded steps, and torch imported anew.

    THEN no thread of Gloo is left at the end: one that lets go of a tensor then aborts the process.
    """
    wrapper, probe = Path(__file__).with_name("threads_at_exit.py"), PROBES / "phases.py"
    torchrun(wrapper, tmp_path, probe, "--device", "cpu", "--out", tmp_path / "run", ranks=1, anew=True)

    threads = json.loads((tmp_path / "threads-0.json").read_text())

    assert result_of(tmp_path / "run")["phases"]["ranks"][0]["recompute_count"] > 0
    assert [name for name in threads if "gloo" in name] == []
