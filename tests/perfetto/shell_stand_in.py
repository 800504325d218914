#!/usr/bin/env python3
"""A stand-in for trace_processor_shell (-D --http-port N), which answers with the bundled trace processor.

The real binary would have to be downloaded, which neither tests nor tracekit do.
"""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from tracekit.errors import UsageError
from tracekit.trace_processor.choice import _bundled

processor = _bundled()
protos, rpc = processor._protos, processor._rpc
trace = bytearray()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/notify_eof":
            processor.load(bytes(trace))
        self.answer(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/parse":
            trace.extend(body)
            refused = "no trace" if trace.startswith(b"no trace") else ""
            self.answer(protos.AppendTraceDataResult(error=refused).SerializeToString())
            return
        arguments = protos.QueryArgs.FromString(body)
        result = protos.QueryResult()
        try:
            answer = processor.ask(arguments.sql_query)
        except UsageError as error:
            result.error = f"line 1 col 8\n{error.message}"
        else:
            result.column_names.extend(answer.columns)
            batch = result.batch.add(is_last_batch=True)
            for cell in (cell for row in answer.rows for cell in row):
                if cell is None:
                    batch.cells.append(1)
                elif isinstance(cell, int):
                    batch.cells.append(2)
                    batch.varint_cells.append(cell)
                elif isinstance(cell, float):
                    batch.cells.append(3)
                    batch.float64_cells.append(cell)
                else:
                    batch.cells.append(4)
                    batch.string_cells += f"{cell}\0"
        self.answer(result.SerializeToString())

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


HTTPServer(("localhost", int(sys.argv[sys.argv.index("--http-port") + 1])), Handler).serve_forever()
