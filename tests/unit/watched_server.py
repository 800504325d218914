"""A server of a trace whose clock tests set, and whose end and answers they can wait for."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.serve import UI_ORIGIN, TraceServer

TRACE = bytes(range(256)) * 40_000  # larger than the buffers of a socket
IDLE_TIMEOUT_S = 100.0
HOST, UI = ("Host", "127.0.0.1:{port}"), ("Origin", UI_ORIGIN)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class WatchedServer(TraceServer):
    """A server that tests can wait for: it has finished a request some time after the last byte of the answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._finished: set[Any] = set()
        self._changed = threading.Condition()
        super().__init__(*arguments, **options)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        super().process_request_thread(request, client_address)
        with self._changed:
            self._finished.add(client_address)
            self._changed.notify_all()

    def wait_until_finished(self, client_address: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: client_address in self._finished, timeout=20)
            self._finished.discard(client_address)  # the next connection may have the same port


@dataclass(frozen=True)
class Served:
    server: WatchedServer
    clock: Clock
    ended: Future[bool]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def ask(
        self, method: str, path: str | None = None, headers: list[tuple[str, str]] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Return the answer and its body after the server has finished. Default `headers`: those of the UI's page."""
        headers = [("Host", self.host), ("Origin", UI_ORIGIN)] if headers is None else headers
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        try:
            connection.putrequest(
                method, self.server.trace_path if path is None else path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders()
            address = connection.sock.getsockname()
            answer = connection.getresponse()
            body = answer.read()
            self.server.wait_until_finished(address)
            return answer, body
        finally:
            connection.close()


@contextmanager
def serving(trace: Path, ui: Path | None = None) -> Iterator[Served]:
    clock = Clock()
    with (
        trace.open("rb") as stream,
        WatchedServer(stream, "run.pftrace", ui=ui, port=0, idle_timeout_s=IDLE_TIMEOUT_S, clock=clock) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        server.timeout = 0.01  # each test waits until the server has ended
        ended = pool.submit(server.serve_until_fetched)
        yield Served(server, clock, ended)
        clock.now_s += 1e9
