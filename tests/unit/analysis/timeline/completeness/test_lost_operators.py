"""Steps of a CPU rank in which an operator ran that cannot be read do not count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.load import load
from tracekit.analysis.timeline.completeness.lost_operators import may_lack_operators
from tracekit.model.run import Run

STEPS = 4
DAMAGED = 2

Event = dict[str, Any]


def cpu_rank() -> TraceBuilder:
    """Steps of 1 ms: operators for 600 us, and a reduction of 300 us."""
    trace = TraceBuilder(0, 1)
    for step in range(STEPS):
        at_us = 1000 * step
        trace.step(step, at_us, 1000)
        for number in range(6):
            trace.op(f"aten::op{number}", at_us + 20 + 100 * number, 100)
        trace.gloo("all_reduce", at_us + 650, 300)
    return trace


def damaged_text(damage: Callable[[str], str], name: str = "aten::op3") -> str:
    """Return the text of the trace, in which one event of a step is damaged."""
    document = json.loads(cpu_rank().text())
    places = [place for place, event in enumerate(document["traceEvents"]) if event.get("name") == name]
    texts = [json.dumps(event) for event in document["traceEvents"]]
    texts[places[DAMAGED]] = damage(texts[places[DAMAGED]])
    document["traceEvents"] = []
    return json.dumps(document).replace('"traceEvents": []', '"traceEvents": [\n' + ",\n".join(texts) + "\n]")


def loaded(folder: Path, text: str) -> Run:
    (folder / "rank0.json").write_text(text)
    return load(folder / "rank0.json")


def parts_of(run: Run) -> dict[int, tuple[int, int, int]]:
    """Return compute, communication and idle time of the steps that count."""
    return {s.step: (s.compute_ns, s.comm_ns, s.idle_ns) for s in run.ranks[0].steps if s.complete}


def with_value(key: str, value: str) -> Callable[[str], str]:
    def damage(event: str) -> str:
        members: Event = json.loads(event)
        return event.replace(f'"{key}": {json.dumps(members[key])}', f'"{key}": {value}')

    return damage


DAMAGES = {
    "duration NaN": with_value("dur", "NaN"),
    "negative duration": with_value("dur", "-5"),
    "no duration": with_value("dur", "null"),
    "start NaN": with_value("ts", "NaN"),
    "no start": with_value("ts", "null"),
    "start a year off": with_value("ts", "31536000000000"),
    "an unescaped quote": with_value("name", '"a"b"'),
    "a beginning without an end": lambda event: event.replace('"ph": "X"', '"ph": "B"'),
    "a missing colon": lambda event: event.replace('"dur":', '"dur"'),
}


@pytest.mark.parametrize("name", ["aten::op3", "gloo:all_reduce"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_only_the_step_of_the_lost_operator_does_not_count(
    tmp_path: Path, damage: Callable[[str], str], name: str
) -> None:
    if name.startswith("gloo") and damage is DAMAGES["an unescaped quote"]:
        name = "aten::op4"  # without its name nothing tells that it is a collective
    whole = parts_of(loaded(tmp_path, damaged_text(lambda event: event)))
    run = loaded(tmp_path, damaged_text(damage, name))
    assert parts_of(run) == {step: parts for step, parts in whole.items() if step != DAMAGED}
    (note,) = (note for note in run.notes if note.kind == "lost_operator")
    assert (note.file, note.rank) == ("rank0.json", 0)
    assert f"step {DAMAGED} may lack an operator" in note.text


def test_an_annotation_that_is_lost_changes_no_step(tmp_path: Path) -> None:
    trace = cpu_rank().label("an annotation", 2100, 50)
    text = trace.text().replace(b'"an annotation"', b'"an "annotation""').decode()
    assert set(parts_of(loaded(tmp_path, text))) == set(range(STEPS))


def test_a_step_may_lack_what_began_in_it() -> None:
    """GIVEN steps of 100 ns, and operators lost at 150, between 250 and 310, before them all, and behind them all."""
    begin = np.arange(0, 500, 100)
    lost = np.array([[150, 150], [250, 310], [-9, -5], [700, 800]])
    assert may_lack_operators(begin, begin + 100, lost).tolist() == [False, True, True, True, False]
