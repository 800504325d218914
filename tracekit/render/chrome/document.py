"""Parts of a trace, one a rank -> one document of Chrome's trace event format.

Comes in: files that a `ChromeWriter` each has written, in whichever process. Goes out: the document, as a stream.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tracekit import __version__
from tracekit.model.metadata import MERGED_KEY
from tracekit.render.chrome.flows import FlowEvents, join_flow_events, letters

__all__ = ["ChromePart", "write_chrome"]


@dataclass(frozen=True, kw_only=True)
class ChromePart:
    """The events of a rank: a file with nothing but them; the arrows between it and others (`ChromeWriter.flows`)."""

    path: Path
    flows: FlowEvents


def write_chrome(stream: BinaryIO, parts: Sequence[ChromePart], *, base_ns: int) -> None:
    """Write `parts`, in the order given, as one document. base_ns: that of their writers.

    `ts` counts microseconds from `baseTimeNanoseconds` (Unix epoch), as in Kineto's own files: numbers since 1970 would
    not keep their nanoseconds in viewers, which read them as doubles. Letters of arrows are set right in the parts.
    """
    if parts:
        settle_flows(parts)
    head = {"schemaVersion": 1, "baseTimeNanoseconds": base_ns, MERGED_KEY: {"version": __version__}}
    stream.write((json.dumps(head, indent=0)[:-2] + ',\n"traceEvents": [\n').encode())
    separator = b""
    for part in parts:
        if part.path.stat().st_size:
            stream.write(separator)
            with part.path.open("rb") as events:
                shutil.copyfileobj(events, stream, 1 << 20)
            separator = b",\n"
    stream.write(b"\n]}\n")


def settle_flows(parts: Sequence[ChromePart]) -> None:
    """Say in the parts which event of an arrow is its start, which a step and which its end, over all of them."""
    right = letters(join_flow_events([part.flows for part in parts]))
    edges = np.cumsum([len(part.flows) for part in parts])[:-1]
    for part, of_part in zip(parts, np.split(right, edges), strict=True):
        if len(of_part):
            events = np.memmap(part.path, dtype=np.uint8, mode="r+")
            events[part.flows.letter_at] = of_part
            events.flush()
