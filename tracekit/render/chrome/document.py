"""Chrome's trace event format: what stands around the pages that a `ChromeWriter` each has written."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tracekit import __version__
from tracekit.model.metadata import MERGED_KEY
from tracekit.render.chrome.writer import ChromeWriter
from tracekit.render.trace.slices import Sink

__all__ = ["ChromeFormat"]


@dataclass(frozen=True, kw_only=True)
class ChromeFormat:
    """`ts` counts microseconds from `base_ns` (Unix epoch), before which there is nothing; it stands in the document as
    `baseTimeNanoseconds`, as in Kineto's own files: numbers since 1970 would not keep their nanoseconds in viewers,
    which read them as doubles.
    """

    base_ns: int

    @property
    def head(self) -> bytes:
        head = {"schemaVersion": 1, "baseTimeNanoseconds": self.base_ns, MERGED_KEY: {"version": __version__}}
        return (json.dumps(head, indent=0)[:-2] + ',\n"traceEvents": [\n').encode()

    @property
    def separator(self) -> bytes:
        return b",\n"

    @property
    def tail(self) -> bytes:
        return b"\n]}\n"

    def writer(self, stream: Sink, place: int) -> ChromeWriter:
        return ChromeWriter(stream, place, base_ns=self.base_ns)
