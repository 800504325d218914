"""Parts of a trace, one a rank -> one document of Chrome's trace event format.

Comes in: files that a `ChromeWriter` each has written, in whichever process. Goes out: the document, as a stream.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tracekit import __version__
from tracekit.model.metadata import MERGED_KEY
from tracekit.render.chrome.writer import ChromeWriter
from tracekit.render.output import move_to_end

__all__ = ["ChromeFormat"]


@dataclass(frozen=True, kw_only=True)
class ChromeFormat:
    """`ts` counts microseconds from `base_ns` (Unix epoch), before which there is nothing; it stands in the document as
    `baseTimeNanoseconds`, as in Kineto's own files: numbers since 1970 would not keep their nanoseconds in viewers,
    which read them as doubles.
    """

    base_ns: int

    def writer(self, stream: BinaryIO, place: int) -> ChromeWriter:
        return ChromeWriter(stream, place, base_ns=self.base_ns)

    def join(self, stream: BinaryIO, parts: Sequence[Path]) -> None:
        """Write the parts, in the order given, as one document; each is removed when it has been."""
        head = {"schemaVersion": 1, "baseTimeNanoseconds": self.base_ns, MERGED_KEY: {"version": __version__}}
        stream.write((json.dumps(head, indent=0)[:-2] + ',\n"traceEvents": [\n').encode())
        separator = b""
        for part in parts:
            if part.stat().st_size:
                stream.write(separator)
                separator = b",\n"
            move_to_end(part, stream)
        stream.write(b"\n]}\n")
