"""A trace from this machine to Perfetto's UI in a browser, over the loopback interface.

Comes in: an open trace, and for use without a network the folder of a UI. Goes out: the trace, to the page whose
address is `TraceServer.url`, and nothing else to anybody else:

* only 127.0.0.1 is bound, and only requests for that host and port are answered (a name that a stranger's DNS points
  at this machine is refused);
* the trace has a path that cannot be guessed, and is given to the UI's origin alone;
* its bytes come from the descriptor that was open when the server began, whatever becomes of the name on disk;
* of the UI's folder, the regular files that were there when the server began, by their exact names;
* it ends by itself: when the trace has been fetched, or nobody has asked for it for a while.
"""

from __future__ import annotations

import errno
import hmac
import os
import re
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO

from tracekit.errors import OutputError

__all__ = ["PORT", "UI_ORIGIN", "TraceServer"]

HOST = "127.0.0.1"
PORT = 9001
"""The one port of this machine that the content security policy of Perfetto's UI lets it fetch from."""

UI_ORIGIN = "https://ui.perfetto.dev"

PATIENCE_S = 600.0
"""How long nobody may ask for the trace: time to type an ssh command on another machine."""

_LINGER_S = 60.0  # a bundled UI goes on asking for its own files after it has the trace
_STALL_S = 30.0
_POLL_S = 0.1
_CHUNK = 1 << 20
_COMMON_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# Without a network is a promise: the UI's own policy would allow it to reach its maker's sites.
_OFFLINE_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}


class TraceServer(socketserver.ThreadingTCPServer):
    """Serves one trace; it listens from the moment it is made until it is closed.

        with path.open("rb") as trace, TraceServer(trace, "run.pftrace") as server:
            webbrowser.open(server.url)
            server.serve_until_fetched()

    trace: a regular file, open. name: what the UI calls it. ui: folder of a UI to serve with it, which is then opened
    in place of ui.perfetto.dev. Raises OutputError when the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = True  # a port that was just closed can be had again
    allow_reuse_port = False  # no other process may listen beside this one
    timeout = _POLL_S
    request_queue_size = 32  # a page asks for several files at once

    def __init__(
        self,
        trace: BinaryIO,
        name: str,
        *,
        ui: Path | None = None,
        port: int = PORT,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trace_path = f"/{secrets.token_urlsafe(32)}/{_plain_name(name)}"
        self.trace_size_bytes = os.fstat(trace.fileno()).st_size
        self.ui_files = {} if ui is None else _files_below(ui)
        self._trace = trace
        self._patience_s = patience_s
        self._linger_s = 0.0 if ui is None else _LINGER_S
        self._clock = clock
        self._last_used = clock()
        self._fetched = threading.Event()
        self._reading = threading.Lock()
        self._is_closed = False
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise OutputError(f"{HOST}:{port}: {error.strerror}", hint="allow listening on 127.0.0.1") from None
            message = f"port {port} of {HOST} is taken, and Perfetto's UI fetches from no other"
            hint = f"end what listens there, often another tracekit open: ss -ltnp 'sport = :{port}'"
            raise OutputError(message, hint=hint) from None
        port = self.server_address[1]
        self.hosts = (f"{HOST}:{port}", f"localhost:{port}")
        self.origins: tuple[str, ...] = (UI_ORIGIN,)
        if ui is not None:
            self.origins = tuple(f"http://{host}" for host in self.hosts)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address that opens the UI with the trace."""
        own = f"http://{self.hosts[0]}"
        return f"{own if self.is_offline else UI_ORIGIN}/#!/?url={own}{self.trace_path}"

    @property
    def is_offline(self) -> bool:
        """A UI is served too, so that page and trace have one origin."""
        return bool(self.ui_files)

    @property
    def was_fetched(self) -> bool:
        """Somebody has got all of the trace."""
        return self._fetched.is_set()

    def serve_until_fetched(self) -> bool:
        """Answer until the trace was fetched and, with a UI, that has gone quiet; False: nobody came for it."""
        while self._clock() - self._last_used <= (self._linger_s if self.was_fetched else self._patience_s):
            if self.was_fetched and not self.is_offline:
                break
            self.handle_request()
        return self.was_fetched

    def note_use(self) -> None:
        self._last_used = self._clock()

    def note_fetched(self) -> None:
        self.note_use()
        self._fetched.set()

    def trace_bytes(self, at: int) -> bytes:
        with self._reading:
            if self._is_closed:
                raise ConnectionAbortedError("the server was closed")
            return os.pread(self._trace.fileno(), min(_CHUNK, self.trace_size_bytes - at), at)

    def server_close(self) -> None:
        # From here on the descriptor may become another file's; a thread that still answers must not read it.
        with self._reading:
            self._is_closed = True
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Browsers open connections that they never use, and close others early.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One request a connection (HTTP/1.0). What is not exactly asked for is refused with an empty answer."""

    server: TraceServer
    timeout = _STALL_S
    server_version = "tracekit"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_admitted():
            return
        if self._is_for_trace():
            self._send_trace()
        elif (file := self.server.ui_files.get(self.path)) is not None:
            self._send_file(file)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_OPTIONS(self) -> None:
        """The browser asks whether a page of the UI's origin may reach into this machine."""
        if not self._is_admitted():
            return
        if not self._is_for_trace() or self.headers.get("Access-Control-Request-Method") != "GET":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.server.note_use()
        self.send_response(HTTPStatus.NO_CONTENT)
        self.send_header("Access-Control-Allow-Methods", "GET")
        if self.headers.get("Access-Control-Request-Private-Network") == "true":
            self.send_header("Access-Control-Allow-Private-Network", "true")
        self._end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse; also what the standard library calls for a request that it cannot read."""
        self.close_connection = True
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Paths are secrets, and stderr is for the person who typed the command."""

    def _is_admitted(self) -> bool:
        """Host and origin are right; else they have been refused. A UI's own requests carry no origin."""
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        if origins == [] and self.server.is_offline:
            return True
        if len(origins) != 1 or origins[0] not in self.server.origins:
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        return True

    def _is_for_trace(self) -> bool:
        return hmac.compare_digest(self.path.encode("utf-8", "replace"), self.server.trace_path.encode())

    def _send_trace(self) -> None:
        size, at = self.server.trace_size_bytes, 0
        self.server.note_use()
        self._begin(size, "application/octet-stream")
        while at < size:
            chunk = self.server.trace_bytes(at)
            if not chunk:  # cut short on disk: the reader sees an incomplete answer
                return
            self.wfile.write(chunk)
            at += len(chunk)
            self.server.note_use()
        self.connection.shutdown(socket.SHUT_WR)
        self.server.note_fetched()

    def _send_file(self, file: Path) -> None:
        try:
            # Not through a link that has taken the file's place since it was listed.
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with os.fdopen(descriptor, "rb") as stream:
            content = stream.read()
        self.server.note_use()
        self._begin(len(content), _MEDIA_TYPES.get(file.suffix, "application/octet-stream"))
        self.wfile.write(content)

    def _begin(self, size_bytes: int, media_type: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(size_bytes))
        if self.server.is_offline:
            self.send_header("Content-Security-Policy", _OFFLINE_POLICY)
        self._end_headers()

    def _end_headers(self) -> None:
        if not self.server.is_offline:
            self.send_header("Access-Control-Allow-Origin", UI_ORIGIN)
            self.send_header("Vary", "Origin")
        for name, value in _COMMON_HEADERS.items():
            self.send_header(name, value)
        self.end_headers()


def _plain_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name) or "trace"


def _files_below(folder: Path) -> dict[str, Path]:
    """The regular files below a folder by their path in an address; links are left out."""
    found = {"/": folder / "index.html"}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                found[f"/{path.relative_to(folder).as_posix()}"] = path
    return found
