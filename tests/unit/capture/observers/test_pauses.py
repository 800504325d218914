"""What holds a program up is recorded: garbage collections, saves of checkpoints, data loaders, time between steps."""

from __future__ import annotations

import gc
import io
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.components import require_module
from tests.old_torch import SAVES_WITHOUT_GROUP
from tests.unit.capture.conftest import Runs
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import remove_patches, take_failures
from tracekit.capture.observers.pauses import PausesObserver
from tracekit.capture.probe import probe
from tracekit.model.spans import checkpoint_span, logging_span
from tracekit.model.table import rows_of
from tracekit.report.report import analyze

torch = require_module("torch")


@pytest.fixture(autouse=True)
def no_collections_of_others() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def record(path: Path, in_step: Callable[[], Any], between: Callable[[], Any] = lambda: None) -> dict[str, Any]:
    """Record two steps and return the trace."""
    recorder = probe(path=path, skip=1, warmup=0, steps=2)

    @recorder
    def step() -> None:
        torch.ones(4).sum()
        in_step()

    for _ in range(4):
        step()
        between()
    recorder.finish()
    (trace,) = Runs(path).traces()
    return trace


def spans(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("name") == name and event["ph"] == "X"]


def test_garbage_collections_have_spans(tmp_path: Path) -> None:
    trace = record(tmp_path, gc.collect)
    found = spans(trace, "tracekit.gc")
    assert len(found) == 2
    assert {span["tid"] for span in found} == {event["tid"] for event in spans(trace, "aten::ones")}


def test_collections_of_the_youngest_generation_have_none(tmp_path: Path) -> None:
    assert not spans(record(tmp_path, lambda: gc.collect(0)), "tracekit.gc")


@pytest.mark.parametrize("save", ["torch", "serialization", "between"])
def test_saves_of_checkpoints_have_spans(tmp_path: Path, save: str) -> None:
    def work() -> None:
        (torch.serialization if save == "serialization" else torch).save(torch.ones(1000), io.BytesIO())

    trace = record(tmp_path, *((lambda: None, work) if save == "between" else (work,)))
    assert len(spans(trace, checkpoint_span("save", "torch.save"))) == 2


def test_loads_of_checkpoints_have_spans(tmp_path: Path) -> None:
    saved = io.BytesIO()
    torch.save(torch.ones(10), saved)

    def work() -> None:
        saved.seek(0)
        torch.load(saved)

    assert len(spans(record(tmp_path, work), checkpoint_span("load", "torch.load"))) == 2


@pytest.mark.skipif(not SAVES_WITHOUT_GROUP, reason="async_save needs a process group")
@pytest.mark.filterwarnings("ignore")
def test_a_distributed_checkpoint_in_the_background_has_spans_where_the_step_waits(tmp_path: Path) -> None:
    """GIVEN a save that takes 50 ms in the background WHEN the step waits for its end THEN it does so for that time."""
    checkpoint = require_module("torch.distributed.checkpoint")
    release = threading.Event()

    class Writer(checkpoint.FileSystemWriter):  # type: ignore[misc, name-defined]
        def write_data(self, *args: Any) -> Any:
            assert release.wait(10)
            return super().write_data(*args)

    def work() -> None:
        release.clear()
        saving = checkpoint.async_save({"w": torch.ones(4)}, storage_writer=Writer(tmp_path / "saved"), no_dist=True)
        threading.Timer(0.05, release.set).start()
        saving.result()

    trace = record(tmp_path / "runs", work)
    copies, waits = (
        spans(trace, checkpoint_span(action, "torch.distributed.checkpoint")) for action in ("async_save", "await")
    )
    assert (len(copies), len(waits)) == (2, 2)
    assert all(wait["dur"] > 40_000 for wait in waits)
    assert not spans(trace, checkpoint_span("save", "torch.distributed.checkpoint"))  # the other thread


def test_what_is_logged_has_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, stream = logging.getLogger("test_pauses"), io.StringIO()
    log.addHandler(logging.StreamHandler(logged := io.StringIO()))
    log.setLevel(logging.INFO)
    log.propagate = False
    monkeypatch.setattr("sys.stdout", stream)

    def work() -> None:
        log.info("logged")
        log.debug("not logged")
        print("printed")

    trace = record(tmp_path, work)
    assert len(spans(trace, logging_span("Logger.handle"))) == 2
    assert len(spans(trace, logging_span("stdout"))) == 4  # the text and the end of the line
    assert (logged.getvalue(), stream.getvalue()) == (4 * "logged\n", 4 * "printed\n")
    assert "write" not in vars(stream)


def test_data_loaders_have_spans_without_being_wrapped(tmp_path: Path) -> None:
    """The start of the loader, and each batch and the end, for which torch itself writes a span."""
    loader = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)
    trace = record(tmp_path, lambda: list(loader))
    assert len(spans(trace, "tracekit.data")) == 2
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert len(spans(trace, name)) == 2 * (2 + 1)


def test_the_time_between_steps_is_known(tmp_path: Path) -> None:
    event = threading.Event()
    trace = record(tmp_path, lambda: None, lambda: event.wait(0.02))
    steps = trace["tracekit"]["steps"]
    assert len(steps) == 2
    assert all(step["end_ns"] - step["returned_ns"] >= 20e6 for step in steps)
    report = analyze(tmp_path, only="breakdown")
    causes = {row["cause"]: row["total_ns"] for row in rows_of(report.breakdown, "idle")}
    assert causes["between_steps"] >= 40e6


def test_garbage_and_checkpoints_are_causes_of_idle_time(tmp_path: Path) -> None:
    cycles = [[] for _ in range(200_000)]  # what a collection has to look at

    def work() -> None:
        gc.collect()
        torch.save({"cycles": len(cycles), "weights": torch.ones(2**20)}, tmp_path / "weights.pt")

    record(tmp_path / "runs", work)
    report = analyze(tmp_path / "runs", only="breakdown")
    causes = {row["cause"]: row["total_ns"] for row in rows_of(report.breakdown, "idle")}
    assert causes["garbage_collection"] > 0
    assert causes["checkpoint"] > 0
    (rank,) = rows_of(report.breakdown, "ranks")
    assert sum(causes.values()) == rank["idle_ns"]


@pytest.mark.parametrize("end", ["detach", "remove_patches"])
def test_nothing_is_left_behind(end: str) -> None:
    before = list(gc.callbacks), torch.save, torch.serialization.save, torch.utils.data.DataLoader.__iter__
    observer = PausesObserver()
    observer.attach(LiveObjects())
    assert len(gc.callbacks) == len(before[0]) + 1
    assert torch.save is not before[1]

    if end == "detach":
        observer.detach(LiveObjects())
        observer.detach(LiveObjects())
    else:  # in a forked child
        remove_patches()

    after = list(gc.callbacks), torch.save, torch.serialization.save, torch.utils.data.DataLoader.__iter__
    assert after == before


def test_a_collection_that_began_before_the_recording_has_no_span() -> None:
    observer = PausesObserver()
    observer.attach(LiveObjects())
    gc.callbacks[-1]("stop", {"generation": 2})
    observer.detach(LiveObjects())

    assert take_failures() == []
