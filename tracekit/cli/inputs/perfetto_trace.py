"""What `open` and `query` take: a trace that Perfetto reads, or a run, which is merged into one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tracekit.cli.inputs.file_kind import kind_of
from tracekit.cli.inputs.merged_run import merged_run
from tracekit.cli.inputs.run_choice import RunChoice

__all__ = ["PerfettoTrace", "perfetto_trace"]


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
    """A file that Perfetto reads as it is; not JSON, which is read as a run. InputError: it is neither."""
    if not path.is_file():
        return False
    kind = kind_of(path)
    if not (kind.is_ready or kind.is_run):
        from tracekit.errors import InputError

        hint = "give a run, a trace of torch.profiler, or what tracekit merge wrote"
        raise InputError(f"{path}: {kind.name}, not a trace", hint=hint)
    return kind.is_ready
