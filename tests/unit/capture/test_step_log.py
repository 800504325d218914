"""The time in the data loader, measured by `Probe.iterate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tracekit.capture.probe import probe


@pytest.mark.parametrize("form", ["context", "decorator"])
def test_a_slow_loader_is_seen_in_each_step(torch: Any, runs: Any, work: Callable[[], float], form: str) -> None:
    def loader() -> Iterator[int]:
        for item in range(6):
            time.sleep(0.01)
            yield item

    recorder = probe(path=runs.path, skip=1, warmup=0, steps=3)
    if form == "context":
        with recorder:
            for _ in recorder.iterate(loader()):
                work()
                recorder.step()
    else:
        step = recorder(work)
        for _ in recorder.iterate(loader()):
            step()
        recorder.finish()

    (trace,) = runs.traces()
    steps = trace["tracekit"]["steps"]
    assert [step["step"] for step in steps] == [1, 2, 3]
    spans = [event for event in trace["traceEvents"] if event.get("name") == "tracekit.data"]
    assert len(spans) == 3
    assert {event["tid"] for event in spans} == {e["tid"] for e in trace["traceEvents"] if e["name"] == "aten::ones"}
    for recorded, span in zip(steps, sorted(spans, key=lambda event: event["ts"]), strict=True):
        assert 10e6 <= recorded["data_ns"] < 30e6
        assert abs(span["dur"] * 1e3 - recorded["data_ns"]) < 5e6
        start_ns = trace["baseTimeNanoseconds"] + int(span["ts"] * 1000)
        assert recorded["start_ns"] <= start_ns < recorded["end_ns"]
