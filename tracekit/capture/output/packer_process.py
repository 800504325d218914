"""Packs an export in another process, so that neither Python's lock nor the compression holds up the training.

The training process sends lines of JSON, and the other answers each with one: first what is to be packed, answered with
what the check found, then the metadata, answered with the bytes written. An answer may be an error instead. The other
process has a session of its own: signals to the job's process group do not reach it, and it ends its work if the
training process is killed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from tracekit.capture.output.disk import DiskBudget, written_bytes
from tracekit.capture.output.packing import CheckedExport, ExportPacker
from tracekit.capture.output.places import Place
from tracekit.errors import OutputError
from tracekit.model.metadata import CaptureMetadata

_START = "import sys; sys.path[:] = {path!r}; from tracekit.capture.output.packer_process import main; main()"
_NICENESS = 10

T = TypeVar("T")

__all__ = ["PackerProcess", "PackerProcessError", "main"]


class _Request(msgspec.Struct, frozen=True):
    """What is to be packed, and the disk budget in bytes: `written_bytes` of it are used."""

    folder: str
    rank: int
    pid: int  # of the training process, after which the scratch files are named
    max_bytes: int
    min_free_bytes: int
    written_bytes: int


class _Refusal(msgspec.Struct, frozen=True):
    message: str
    hint: str


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    checked: CheckedExport | None = None
    size_bytes: int | None = None
    refusal: _Refusal | None = None


class PackerProcessError(Exception):
    """The process has ended without an answer; its scratch files are removed, the export is still there."""


class PackerProcess:
    """Packs the export at `place` in a new process, within `budget`. Raises PackerProcessError if there is none.

    `kill` may be called on any thread, the other methods on one.
    """

    def __init__(self, place: Place, budget: DiskBudget) -> None:
        self._request = _Request(
            folder=str(place.folder.absolute()),
            rank=place.rank,
            pid=os.getpid(),
            max_bytes=budget.max_bytes,
            min_free_bytes=budget.min_free_bytes,
            written_bytes=written_bytes(),
        )
        # Where this process imports from, as the current folder and the environment may have changed meanwhile.
        path = [str(Path(entry or ".").absolute()) for entry in sys.path]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, TypeError, ValueError) as error:  # no interpreter, no memory, too many processes
            raise PackerProcessError(str(error)) from error

    def check(self) -> CheckedExport:
        answer = self._ask(msgspec.json.encode(self._request))
        if answer.checked is None:
            raise PackerProcessError("it gave no answer")
        return answer.checked

    def publish(self, metadata: CaptureMetadata) -> int:
        answer = self._ask(msgspec.json.encode(metadata))
        if answer.size_bytes is None:
            raise PackerProcessError("it gave no answer")
        return answer.size_bytes

    def close(self) -> None:
        """End the process. The export stays if it has not been published."""
        with contextlib.suppress(OSError):
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()

    def _ask(self, line: bytes) -> _Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
            answer = msgspec.json.decode(self._process.stdout.readline(), type=_Answer)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise PackerProcessError(str(error)) from error
        if answer.refusal is not None:
            raise OutputError(answer.refusal.message, hint=answer.refusal.hint)
        return answer


def main() -> None:
    """Answer the lines on the standard input, as the other process."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Request)
    place = Place(Path(request.folder), request.rank, request.pid)
    budget = DiskBudget(max_bytes=request.max_bytes, min_free_bytes=request.min_free_bytes)
    budget.count_written(request.written_bytes)
    packer = ExportPacker(place, budget, keep_export=True)
    try:
        _answer(_Answer(checked=packer.check()))
        # Nothing comes if the training process has been killed: then the scratch files are what can be read.
        if metadata := sys.stdin.buffer.readline():
            size_bytes = packer.publish(msgspec.json.decode(metadata, type=CaptureMetadata))
            packer.close()
            _answer(_Answer(size_bytes=size_bytes))
    except (OSError, RuntimeError) as error:
        text = f"the trace could not be written to {place.folder}: {error}"
        _answer(_Answer(refusal=_Refusal(message=text, hint="see the path option")))
    except OutputError as error:
        _answer(_Answer(refusal=_Refusal(message=error.message, hint=error.hint)))


def _answer(answer: _Answer) -> None:
    with contextlib.suppress(BrokenPipeError):  # the training process has ended
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
