"""Arguments of slices in a merged trace: those of their events in the input."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.perfetto.merged import complete_events, merged
from tests.perfetto.written_arguments import WRITERS, arguments, traces_of
from tracekit.loading.load import load
from tracekit.trace_processor import TraceProcessor


@pytest.fixture(params=WRITERS)
def source(request: pytest.FixtureRequest, real_traces: Path) -> Path:
    return traces_of(request.param, real_traces)


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
