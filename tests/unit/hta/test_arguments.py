"""Arguments become columns with the dtypes that pandas gives a list of all their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tracekit.hta.analyses import ArgumentColumn, argument_columns, counter_names, smallest_integers
from tracekit.read.decode.written_events import WrittenEvents


def events(*texts: str | None) -> WrittenEvents:
    """Return one event for each text of arguments."""
    known = [*dict.fromkeys(text for text in texts if text is not None)]
    count = len(texts)
    zeros, ids = np.zeros(count, dtype=np.int32), np.arange(count, dtype=np.int64) - 1
    return WrittenEvents(
        texts=["a name"],
        tracks=[],
        position=np.arange(count, dtype=np.int32),
        name=zeros,
        category=zeros,
        track=zeros,
        start_ns=ids,
        duration_ns=ids,
        correlation=ids,
        external_id=ids,
        sequence_number=ids,
        forward_thread=ids,
        arguments=np.array([-1 if text is None else known.index(text) for text in texts], dtype=np.int32),
        argument_texts=[text.encode() for text in known],
        keys={},
        has_other_phases=False,
    )


def column(default: Any, *texts: str | None, key: str = "x") -> Any:
    return argument_columns(events(*texts), [ArgumentColumn("wanted", key, default)])["wanted"]


@pytest.mark.parametrize(
    ("default", "texts", "values"),
    [
        (-1, ['{"x": 3}', None, '{"y": 1}'], [3, -1, -1]),
        (-1, ['{"x": 300}', '{"x": 4000000000}'], [300, 4_000_000_000]),
        (0.0, ['{"x": 3}', '{"x": 2.5}', None], [3, 2.5, 0.0]),
        (-1, ['{"x": "4096"}', '{"x": 4096}'], ["4096", 4096]),
        ("-1", ['{"y": 1}', None], ["-1", "-1"]),
        ("-1", ['{"x": "float"}', None], ["float", "-1"]),
        ("-1", ['{"x": [[2, 3], []]}', None, '{"x": [[2, 3]]}'], [[[2, 3], []], "-1", [[2, 3]]]),
        (0.0, ['{"x": NaN}', '{"x": 1.5}'], [float("nan"), 1.5]),
    ],
)
def test_values_and_dtype(default: Any, texts: list[str | None], values: list[Any]) -> None:
    expected = pd.Series(values)
    if expected.dtype.kind == "i":
        expected = pd.to_numeric(expected, downcast="integer")
    pd.testing.assert_series_equal(pd.Series(column(default, *texts)), expected)


def test_ids_come_from_their_own_columns() -> None:
    assert column(-1, None, None, None, key="correlation").tolist() == [-1, 0, 1]
    assert column(7, None, None, None, key="Sequence number").tolist() == [7, 0, 1]


def test_a_stream_that_is_no_number_is_none() -> None:
    wanted = [ArgumentColumn("stream", "stream", -1)]
    texts = ('{"stream": "7"}', '{"stream": "default"}', '{"stream": null}', '{"stream": 3}')
    assert argument_columns(events(*texts), wanted)["stream"].tolist() == [7, -1, -1, 3]


def test_counters_are_all_arguments_of_their_events() -> None:
    written = events('{"b.sum": 1, "a.sum": 2}', '{"c.sum": 3}', None, '{"other": 1}')
    assert counter_names(written, np.array([0, 1, 2])) == ["a.sum", "b.sum", "c.sum"]


@pytest.mark.parametrize("most", [1, 127, 128, 40_000, 1 << 31, 1 << 40])
def test_integers_take_as_few_bytes_as_with_pandas(most: int) -> None:
    for values in (np.array([0, most]), np.array([-most, 5])):
        expected = pd.to_numeric(pd.Series(values), downcast="integer")
        assert smallest_integers(values).dtype == expected.dtype
