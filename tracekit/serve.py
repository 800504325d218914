"""Serve a trace from this machine to Perfetto's UI in a browser, over the loopback interface.

The trace goes to the page at `TraceServer.url`, to which `short_url` leads, and nothing else is served. Without a
network, the UI is served too.

* The server listens on 127.0.0.1 only, and answers only requests for that host and port. So a foreign DNS name that
  points at this machine is refused.
* The trace has a path that cannot be guessed, and is given to the UI's origin only.
* The trace is read from the file that was open when the server began, even if its name is then given to another file.
* Of the UI's folder, the regular files are served that were there when the server began, by their exact names.
* The server ends by itself: when the trace has been fetched, or after a time without requests.
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
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO
from urllib.parse import quote

from tracekit.errors import OutputError

HOST = "127.0.0.1"
PORT = 9001
"""The only local port from which the content security policy of Perfetto's UI lets it fetch."""

UI_ORIGIN = "https://ui.perfetto.dev"

IDLE_TIMEOUT_S = 600.0
"""The server ends after this time without a request. It suffices to type an ssh command on another machine."""

_LINGER_S = 60.0  # a bundled UI continues to fetch its files after it has the trace
_STALL_S = 30.0  # a connection without any progress is closed after this time
_POLL_S = 0.1
_CHUNK = 1 << 20
_UNQUOTED = ":,()$*"  # besides letters and digits; an address is shorter if few characters are quoted
_COMMON_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# The UI's policy would allow it to reach its maker's sites. This one ensures that nothing leaves the machine.
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


def browse(url: str) -> bool:
    """Open an address in a browser with a window, and return whether there is one: another could not show the page."""
    import webbrowser

    has_window = sys.platform != "linux" or any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))
    return has_window and webbrowser.open_new_tab(url)


class TraceServer(socketserver.ThreadingTCPServer):
    """Serves one trace. It listens from its construction until it is closed.

        with path.open("rb") as trace, TraceServer(trace, "run.pftrace") as server:
            print(server.url)  # secret: a browser gets it by a file, as on its command line anybody could read it
            server.serve_until_fetched()

    trace: an open regular file.
    name: name of the trace in the UI.
    ui: folder of a UI, which is served too and opened instead of ui.perfetto.dev.
    page_arguments: arguments for the address of the page, such as what to show first (`OpeningView.page_arguments`).

    Raises OutputError if the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = True  # a port that was just closed can be opened again
    allow_reuse_port = False  # no other process may listen on the port too
    timeout = _POLL_S
    request_queue_size = 32  # a page asks for several files at once

    def __init__(
        self,
        trace: BinaryIO,
        name: str,
        *,
        ui: Path | None = None,
        page_arguments: Mapping[str, str] = MappingProxyType({}),
        port: int = PORT,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trace_path = f"/{secrets.token_urlsafe(32)}/{_plain_name(name)}"
        self.short_path = f"/{secrets.token_urlsafe(9)}"
        self.trace_size_bytes = os.fstat(trace.fileno()).st_size
        self.ui_files = {} if ui is None else _files_below(ui)
        self._page_arguments = page_arguments
        self._trace = trace
        self._idle_timeout_s = idle_timeout_s
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
        self.port = int(self.server_address[1])
        self.hosts = (f"{HOST}:{self.port}", f"localhost:{self.port}")
        self.origins: tuple[str, ...] = (UI_ORIGIN,)
        if ui is not None:
            self.origins = tuple(f"http://{host}" for host in self.hosts)

    @property
    def url(self) -> str:
        """The address that opens the UI with the trace."""
        server = f"http://{self.hosts[0]}"
        page = server if self.is_offline else UI_ORIGIN
        arguments = [f"{name}={quote(value, safe=_UNQUOTED)}" for name, value in self._page_arguments.items()]
        return "&".join([f"{page}/#!/?url={server}{self.trace_path}", *arguments])

    @property
    def short_url(self) -> str:
        """The address on this machine that leads to `url`: short enough to be typed, and secret as well."""
        return f"http://{self.hosts[0]}{self.short_path}"

    @property
    def is_offline(self) -> bool:
        """Whether a UI is served too, so that page and trace have the same origin."""
        return bool(self.ui_files)

    @property
    def was_fetched(self) -> bool:
        """Whether a client has received all of the trace."""
        return self._fetched.is_set()

    def serve_until_fetched(self) -> bool:
        """Answer requests until the trace was fetched. Return False if nobody fetched it in time.

        With a UI, continue until that has sent no request for a minute.
        """
        while self._clock() - self._last_used <= (self._linger_s if self.was_fetched else self._idle_timeout_s):
            if self.was_fetched and not self.is_offline:
                break
            self.handle_request()
        return self.was_fetched

    def touch(self) -> None:
        """Restart the time after which the server ends."""
        self._last_used = self._clock()

    def mark_fetched(self) -> None:
        self.touch()
        self._fetched.set()

    def trace_bytes(self, at: int) -> bytes:
        with self._reading:
            if self._is_closed:
                raise ConnectionAbortedError("the server was closed")
            return os.pread(self._trace.fileno(), min(_CHUNK, self.trace_size_bytes - at), at)

    def server_close(self) -> None:
        # From here on the descriptor may belong to another file. A thread that still answers must not read it.
        with self._reading:
            self._is_closed = True
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Browsers open connections that they never use, and close others early. That is no error.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Handles one request on each connection (HTTP/1.0). All but the expected requests get an empty refusal."""

    server: TraceServer
    timeout = _STALL_S
    server_version = "tracekit"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_admitted():
            return
        if self._asks_for(self.server.trace_path):
            self._send_trace()
        elif self._asks_for(self.server.short_path):
            self.server.touch()
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", self.server.url)
            self.send_header("Content-Length", "0")
            self._end_headers()
        elif (file := self.server.ui_files.get(self.path)) is not None:
            self._send_file(file)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_OPTIONS(self) -> None:
        """Answer the browser's question whether a page of the UI's origin may reach this machine (preflight)."""
        if not self._is_admitted():
            return
        if not self._asks_for(self.server.trace_path) or self.headers.get("Access-Control-Request-Method") != "GET":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.server.touch()
        self.send_response(HTTPStatus.NO_CONTENT)
        self.send_header("Access-Control-Allow-Methods", "GET")
        if self.headers.get("Access-Control-Request-Private-Network") == "true":
            self.send_header("Access-Control-Allow-Private-Network", "true")
        self._end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse the request. The standard library also calls this for requests that it cannot parse."""
        self.close_connection = True
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: paths are secret, and stderr is for messages to the user."""

    def _is_admitted(self) -> bool:
        """Return whether host and origin are right; if not, refuse the request.

        A served UI requests its files without an origin, and a browser the address that was typed.
        """
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        if origins == [] and (self.server.is_offline or self._asks_for(self.server.short_path)):
            return True
        if len(origins) != 1 or origins[0] not in self.server.origins:
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        return True

    def _asks_for(self, path: str) -> bool:
        return hmac.compare_digest(self.path.encode("utf-8", "replace"), path.encode())

    def _send_trace(self) -> None:
        size, at = self.server.trace_size_bytes, 0
        self.server.touch()
        self._begin(size, "application/octet-stream")
        while at < size:
            chunk = self.server.trace_bytes(at)
            if not chunk:  # the file was truncated; the client sees an incomplete answer
                return
            self.wfile.write(chunk)
            at += len(chunk)
            self.server.touch()
        self.connection.shutdown(socket.SHUT_WR)
        self.server.mark_fetched()

    def _send_file(self, file: Path) -> None:
        try:
            # Do not follow a link that has replaced the file since the folder was listed.
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with os.fdopen(descriptor, "rb") as stream:
            content = stream.read()
        self.server.touch()
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
    """Return the regular files below a folder by their path in an address. Links are left out."""
    files = {"/": folder / "index.html"}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                files[f"/{path.relative_to(folder).as_posix()}"] = path
    return files
