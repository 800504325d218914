"""Write documents in Chrome's format with several writers, as `tracekit merge` does, and read them with the standard
library."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from tracekit.chrome import ChromeFormat, ChromeWriter
from tracekit.render.merged.merge import Document
from tracekit.render.slices import Argument, Flows, Slices

BASE_NS = 1_752_000_000_123_456_789


def slices_of(
    rows: Sequence[tuple[int, int, int]],
    strings: list[str],
    *,
    category: int = -1,
    arguments: tuple[Argument, ...] = (),
    flows: tuple[Flows, ...] = (),
    extra_args: Sequence[int] | None = None,
) -> Slices:
    """Return slices of one category from rows (start after `BASE_NS`, duration, index of the name)."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Slices(
        start_ns=columns[:, 0] + BASE_NS,
        duration_ns=columns[:, 1],
        name=columns[:, 2].astype(np.int32),
        category=np.full(len(columns), category, dtype=np.int32),
        strings=strings,
        arguments=arguments,
        flows=flows,
        extra_args=None if extra_args is None else np.array(extra_args, dtype=np.int32),
    )


def chrome_document(*ranks: Callable[[ChromeWriter], None]) -> bytes:
    """Return a document in which each of `ranks` writes its page."""
    stream = io.BytesIO()
    chrome = ChromeFormat(base_ns=BASE_NS)
    document = Document(stream, chrome)
    for rank, write in enumerate(ranks):
        document.begin_page()
        write(chrome.writer(document, rank))
    document.end()
    return stream.getvalue()


def read_events(document: bytes, phases: str = "X") -> list[dict[str, Any]]:
    """Return the events of the `phases`, with `ts` and `dur` in integer nanoseconds, `ts` after `BASE_NS`."""
    content = json.loads(document, parse_float=Decimal)
    assert content["baseTimeNanoseconds"] == BASE_NS
    events = [event for event in content["traceEvents"] if event["ph"] in phases]
    for event in events:
        for key in {"ts", "dur"} & event.keys():
            exact = Decimal(event[key]) * 1000
            assert exact == int(exact)
            event[key] = int(exact)
    return events
