"""Whether a file that is to be overwritten is a recording, which no result is worth: `--force` does not replace it."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from tracekit.model.metadata import MANIFEST_SUFFIX, MERGED_KEY, PROGRESS_SUFFIX
from tracekit.read.files.beginning import beginning_of

__all__ = ["is_recording"]

_ZSTD = b"\x28\xb5\x2f\xfd"
# Keys of Kineto's files. In the text of a result the quotes in front of them would be escaped.
_KEY = re.compile(rb'(?<!\\)"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|ph)"\s*:')


def is_recording(path: Path) -> bool:
    """Return whether a file is a trace of torch.profiler, or what the probe writes beside one. Raises OSError."""
    if path.name.endswith((MANIFEST_SUFFIX, PROGRESS_SUFFIX)):
        return True
    try:
        beginning = beginning_of(path)
    except zlib.error:
        return False
    if beginning.startswith(_ZSTD):  # no result is packed so
        return True
    is_json = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))
    return is_json and _KEY.search(beginning) is not None and MERGED_KEY.encode() not in beginning
