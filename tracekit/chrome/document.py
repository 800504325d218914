"""Chrome's trace event format as a whole: what comes before, between and after the pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tracekit import __version__
from tracekit.model.metadata import MERGED_KEY
from tracekit.chrome.writer import ChromeWriter
from tracekit.render.trace.slices import Sink

__all__ = ["ChromeFormat"]


@dataclass(frozen=True, kw_only=True)
class ChromeFormat:
    """Chrome's format, as `TraceFormat` describes formats.

    Viewers read `ts` as a double, which would lose the nanoseconds of times since 1970. So `ts` counts from a base. The
    document holds it as `baseTimeNanoseconds`, as Kineto's files do.

    Attributes:
        base_ns: Time since the Unix epoch from which `ts` counts; nothing is before it.
        attributes: Texts about the trace as a whole, by name.
    """

    base_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def head(self) -> bytes:
        merged = {"version": __version__, **self.attributes}
        head = {"schemaVersion": 1, "baseTimeNanoseconds": self.base_ns, MERGED_KEY: merged}
        return (json.dumps(head, indent=0)[:-2] + ',\n"traceEvents": [\n').encode()

    @property
    def separator(self) -> bytes:
        return b",\n"

    @property
    def tail(self) -> bytes:
        return b"\n]}\n"

    def writer(self, stream: Sink, place: int) -> ChromeWriter:
        return ChromeWriter(stream, place, base_ns=self.base_ns)
