"""Arguments of slices in a merged trace: those of their events in the input, in both formats."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.perfetto.merged import complete_events, merged
from tracekit.loading.load import load
from tracekit.render.merged.merge import merge
from tracekit.trace_processor import TraceProcessor

DATA = Path(__file__).parents[1] / "data"
COUNTERS = {"Ev Idx", "Record function id", "Python id", "Python parent id"}  # the profiler's, left out


@pytest.fixture(params=["ddp", "dlrm_8xV100", "a100_ddp", "b200_tp8", "mi300x_resnet", "gloo_rank34"])
def source(request: pytest.FixtureRequest, real_traces: Path) -> Path:
    """A run, or one rank of a run."""
    if request.param == "ddp":
        return DATA / "ddp_slow_rank"
    (found,) = [*real_traces.glob(f"{request.param}*/"), *real_traces.glob(f"single_rank/{request.param}*")]
    return found


def arguments(events: Iterable[dict[str, Any]]) -> Counter[tuple[str, str, str, str]]:
    """Count the arguments of events as (category, name, key, JSON of the value)."""
    return Counter(
        (event["cat"], event["name"], key, json.dumps(value))
        for event in events
        for key, value in event.get("args", {}).items()
        if key not in COUNTERS
    )


def in_perfetto(value: Any) -> Any:
    """Return a value as Perfetto has it: lists and objects are text, here with the standard library's spaces."""
    with suppress(ValueError, TypeError):
        value = json.loads(value) if value[:1] in {"[", "{"} else value
    return json.dumps(value) if isinstance(value, list | dict) else value


def test_every_argument_of_the_input_is_in_the_trace(
    trace_processor: TraceProcessor, source: Path, tmp_path: Path
) -> None:
    """GIVEN traces of many writers WHEN merged THEN numbers and texts keep their type, and lists are their JSON."""
    merged(trace_processor, load(source), tmp_path)
    rows = trace_processor.query(
        "select category, slice.name as name, key, value_type, string_value, int_value, real_value, count() as n "
        "from slice join args using (arg_set_id) where category != 'tracekit' group by 1, 2, 3, 4, 5, 6, 7"
    )
    shown: Counter[tuple[str, str, str, Any]] = Counter()
    for row in rows:
        value = row[{"string": "string_value", "int": "int_value", "real": "real_value"}[row["value_type"]]]
        shown[row["category"], row["name"], row["key"].removeprefix("debug."), in_perfetto(value)] += row["n"]
    expected: Counter[tuple[str, str, str, Any]] = Counter()
    for (category, name, key, text), count in arguments(complete_events(source)).items():
        # Perfetto takes keys for paths, and replaces dots and brackets in them.
        expected[category, name, re.sub(r"[.\[\]]", "_", key), in_perfetto(json.loads(text))] += count
    assert shown == expected
    assert len({key for _, _, key, _ in shown}) >= 5


def test_arguments_in_chrome_s_format_are_unchanged(source: Path, tmp_path: Path) -> None:
    written = merge(load(source), tmp_path / "run.json", form="chrome").path
    shown = (event for event in complete_events(written) if event["cat"] != "tracekit")
    assert arguments(shown) == arguments(complete_events(source))
