"""What `open` and `query` take: a trace that Perfetto reads, or a run, which is merged into one."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tracekit.cli.merging import merged_run
from tracekit.cli.run_choice import RunChoice

__all__ = ["PerfettoTrace", "perfetto_trace"]

_LOOKED_AT = 1 << 16
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, kw_only=True)
class PerfettoTrace:
    """stream: open, of a regular file. is_merged: it was made of a run just now, and goes when the stream is closed."""

    stream: BinaryIO
    name: str
    is_merged: bool


@contextmanager
def perfetto_trace(choice: RunChoice) -> Iterator[PerfettoTrace]:
    """The trace that was named, or the run that was, merged. Raises what `load` and `merge` do."""
    if len(choice.paths) == 1 and _is_ready(Path(choice.paths[0])):
        path = Path(choice.paths[0])
        if (choice.run, choice.attempt, choice.ranks) != (None, None, None):
            from tracekit.errors import UsageError

            raise UsageError(f"{path}: a ready trace, nothing of it can be selected", hint="name the run instead")
        with path.open("rb") as stream:
            yield PerfettoTrace(stream=stream, name=path.name, is_merged=False)
        return
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        stream = merged_run(choice, Path(folder, "run.pftrace")).path.open("rb")
    # The name has gone, so that nothing is left behind however this ends; the stream still has the bytes.
    with stream:
        yield PerfettoTrace(stream=stream, name=f"{Path(choice.paths[0]).name or 'run'}.pftrace", is_merged=True)


def _is_ready(path: Path) -> bool:
    """A file that does not hold JSON: Perfetto's own format or another that it reads. JSON is read as a run."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            beginning = stream.read(_LOOKED_AT)
        if beginning.startswith(_GZIP):
            beginning = zlib.decompressobj(wbits=31).decompress(beginning, _LOOKED_AT)
    except (OSError, zlib.error):
        return False  # `load` says what is wrong with it
    text = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    return bool(text) and not text.startswith((b"{", b"[", _ZSTD))
