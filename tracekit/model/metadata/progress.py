"""The progress file that each rank of a job that may be restarted leaves for each attempt.

It has a fixed size. First comes a `ProgressHeader` as JSON, padded with spaces to `HEADER_BYTES`. A ring of
`RING_ENTRIES` entries follows, each a call and the time at which it began, as two little-endian int64. Entry n lies at
place n modulo `RING_ENTRIES`; an entry whose time is 0 is unused. Each write is small and stands for itself, so that
what a killed process leaves can be read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

from tracekit.model.metadata.limits import MAX_NS, Integer, Rank, WorldSize

HEADER_BYTES = 2048
RING_ENTRIES = 256
PROGRESS_SUFFIX = ".progress"
_ENTRY = struct.Struct("<qq")
FILE_BYTES = HEADER_BYTES + RING_ENTRIES * _ENTRY.size

__all__ = ["FILE_BYTES", "PROGRESS_SUFFIX", "RING_ENTRIES", "Progress", "ProgressHeader", "pack_entry", "pack_header"]


class ProgressHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank says of itself in one attempt. Times are ns of its wall clock.

    Attributes:
        version: of this format.
        run_id, attempt, rank, world_size, pid, host, host_id: as in the trace.
        elastic_id: TORCHELASTIC_RUN_ID.
        agent: which process launched the worker; equal for the attempts that it launches.
        worker: which of its children this rank runs in; different for each attempt.
        restarts: failures after which this agent has restarted its workers (TORCHELASTIC_RESTART_COUNT).
        process_start_ns: when the process started.
        joined_ns: when its process group was complete.
        first_call_ns: when the first step began.
        first_step: the number of the job's step at the first call.
        first_step_source: "calls", "argument", "framework" or "optimizer".
        raised_ns: when the last call that raised did so.
        error: the type of what it raised.
        ended_ns: when the process began to exit; None if it was killed, or still runs.
        ending: "exit", "error" or "sigterm".
    """

    version: Integer = 1
    run_id: str
    attempt: Integer
    rank: Rank
    world_size: WorldSize
    pid: Integer
    host: str
    host_id: str
    elastic_id: str
    agent: str
    worker: str
    restarts: Integer
    process_start_ns: Integer | None = None
    joined_ns: Integer | None = None
    first_call_ns: Integer
    first_step: Integer = 0
    first_step_source: str = "calls"
    raised_ns: Integer | None = None
    error: str | None = None
    ended_ns: Integer | None = None
    ending: str | None = None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A progress file.

    Attributes:
        calls: calls and the times at which they began, in ns, in order of time; only some of the last ones.
    """

    header: ProgressHeader
    calls: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, content: bytes) -> Progress:
        """Return what a file holds. Raises ValueError if it is none."""
        header = msgspec.json.decode(content[:HEADER_BYTES], type=ProgressHeader)
        ring = content[HEADER_BYTES:FILE_BYTES]
        entries = _ENTRY.iter_unpack(ring[: len(ring) - len(ring) % _ENTRY.size])
        calls = sorted(((call, time_ns) for call, time_ns in entries if 0 < time_ns <= MAX_NS), key=lambda e: e[1])
        return cls(header=header, calls=tuple(calls))

    @property
    def last_sign_ns(self) -> int:
        """Return the last moment at which the process is known to have lived."""
        header = self.header
        known = [header.first_call_ns, header.raised_ns, header.ended_ns, *(time_ns for _, time_ns in self.calls)]
        return max(time_ns for time_ns in known if time_ns is not None)


def pack_header(header: ProgressHeader) -> bytes:
    """Return the header as it is written. Raises ValueError if it is too long."""
    text = msgspec.json.encode(header)
    if len(text) > HEADER_BYTES:
        raise ValueError(f"a header of {len(text)} bytes")
    return text.ljust(HEADER_BYTES)


def pack_entry(number: int, call: int, time_ns: int) -> tuple[int, bytes]:
    """Return the place of entry `number` in the file, and its bytes."""
    return HEADER_BYTES + number % RING_ENTRIES * _ENTRY.size, _ENTRY.pack(call, time_ns)
