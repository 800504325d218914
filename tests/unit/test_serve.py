"""The server that gives a trace to Perfetto's UI, over real sockets: who gets it, who is refused, when it ends."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.watched_server import HOST, IDLE_TIMEOUT_S, TRACE, UI, Served, serving
from tracekit.errors import OutputError
from tracekit.serve import UI_ORIGIN, TraceServer


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run.pftrace"
    path.write_bytes(TRACE)
    return path


@pytest.fixture
def served(trace: Path) -> Iterator[Served]:
    with serving(trace) as served:
        yield served


def test_the_ui_gets_the_trace_and_the_server_ends(served: Served) -> None:
    assert served.server.url == f"https://ui.perfetto.dev/#!/?url=http://{served.host}{served.server.trace_path}"
    answer, body = served.ask("GET")
    assert (answer.status, body) == (200, TRACE)
    assert answer.headers.get_all("Access-Control-Allow-Origin") == ["https://ui.perfetto.dev"]
    assert answer.headers["Vary"] == "Origin"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert served.ended.result(timeout=20) is True
    served.server.server_close()
    with pytest.raises(ConnectionRefusedError):
        served.ask("GET")


def test_the_short_address_leads_a_browser_to_the_page(served: Served) -> None:
    """GIVEN a typed address, which has no origin THEN it leads to the page, by its exact name and host alone."""
    server = served.server
    assert server.short_url == f"http://{served.host}{server.short_path}"
    for path, host, expected in [
        (server.short_path, served.host, (302, server.url)),
        (server.short_path[:-1], served.host, (403, None)),
        (server.short_path, "elsewhere.example", (421, None)),
    ]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Location"]) == expected
        connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([UI], 421),
        ([("Host", "evil.example"), UI], 421),
        ([("Host", "evil.example:{port}"), UI], 421),
        ([("Host", "127.0.0.1"), UI], 421),
        ([("Host", "127.0.0.1:1"), UI], 421),
        ([("Host", "127.0.0.1:{port}.evil.example"), UI], 421),
        ([HOST, ("Host", "evil.example"), UI], 421),
        ([HOST], 403),
        ([HOST, ("Origin", "null")], 403),
        ([HOST, ("Origin", "http://ui.perfetto.dev")], 403),
        ([HOST, ("Origin", "https://ui.perfetto.dev.evil.example")], 403),
        ([HOST, ("Origin", "https://evil.example")], 403),
        ([HOST, ("Origin", "http://127.0.0.1:{port}")], 403),
        ([HOST, UI, ("Origin", "https://evil.example")], 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_a_wrong_host_or_origin_is_refused(
    served: Served, method: str, headers: list[tuple[str, str]], status: int
) -> None:
    filled = [(name, value.format(port=served.server.port)) for name, value in headers]
    answer, body = served.ask(method, headers=[*filled, ("Access-Control-Request-Method", "GET")])
    assert (answer.status, body) == (status, b"")
    assert not any(name.lower().startswith("access-control") for name, _ in answer.getheaders())
    assert not served.server.was_fetched


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "CONNECT", "TRACE", "get"])
def test_any_other_method_is_refused(served: Served, method: str) -> None:
    answer, body = served.ask(method)
    assert (answer.status, body) == (501, b"")
    assert not served.server.was_fetched


@pytest.mark.parametrize(
    "path",
    ["/", "/run.pftrace", "/index.html", "{trace}/", "{trace}?x", "{trace}x", "{trace}/{trace}", "{folder}/",
     "{folder}", "{folder}/../{trace}", "http://127.0.0.1:{port}{trace}", "/../../etc/passwd", "/é", "*"],
)  # fmt: skip
def test_any_other_path_is_refused(served: Served, path: str) -> None:
    name = served.server.trace_path
    filled = path.format(trace=name, folder=name.rpartition("/")[0], port=served.server.port)
    # http.client refuses paths that are not ASCII; a hostile page would send them.
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=20) as connection:
        connection.sendall(f"GET {filled} HTTP/1.1\r\nHost: {served.host}\r\nOrigin: {UI_ORIGIN}\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            actual = answer.read()
    assert actual.split()[1] == b"404"
    assert actual.endswith(b"\r\n\r\n")
    assert not served.server.was_fetched


def test_malformed_requests_are_refused_without_a_message(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (b"<script>\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n", b"GET / x y\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.server.port), timeout=20) as connection:
            connection.sendall(line)
            with connection.makefile("rb") as answer:
                assert b"<" not in answer.read()
    assert capsys.readouterr() == ("", "")
    assert served.ask("GET")[1] == TRACE


def test_a_preflight_for_this_machine_is_granted_to_the_ui(served: Served) -> None:
    page = [("Host", served.host), ("Origin", UI_ORIGIN), ("Access-Control-Request-Private-Network", "true")]
    answer, _ = served.ask("OPTIONS", headers=[*page, ("Access-Control-Request-Method", "GET")])
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Origin"] == UI_ORIGIN
    assert answer.headers["Access-Control-Allow-Methods"] == "GET"
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    assert served.ask("OPTIONS", headers=[*page, ("Access-Control-Request-Method", "PUT")])[0].status == 404
    assert served.ask("OPTIONS", "/other", headers=[*page, ("Access-Control-Request-Method", "GET")])[0].status == 404


def test_paths_cannot_be_guessed_and_names_are_plain(trace: Path) -> None:
    with trace.open("rb") as stream:
        paths = []
        for name in ("run.pftrace", "../a b\n<é>?#.pftrace"):
            with TraceServer(stream, name, port=0) as server:
                assert server.server_address[0] == "127.0.0.1"
                paths.append(server.trace_path.split("/"))
    assert [path[2] for path in paths] == ["run.pftrace", ".._a_b______.pftrace"]
    assert len({path[1] for path in paths}) == 2
    assert all(len(path[1]) >= 43 for path in paths)  # 256 bits


def test_a_file_that_replaces_the_trace_is_not_served(served: Served, trace: Path) -> None:
    other = trace.with_name("other")
    other.write_bytes(b"secret" * 10_000_000)
    other.replace(trace)
    assert served.ask("GET")[1] == TRACE


def test_a_trace_that_was_truncated_counts_as_not_fetched(served: Served, trace: Path) -> None:
    os.truncate(trace, 1000)
    with pytest.raises(http.client.IncompleteRead) as error:
        served.ask("GET")
    assert error.value.partial == TRACE[:1000]
    assert not served.server.was_fetched


def test_an_interrupted_fetch_can_be_repeated(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    request = f"GET {served.server.trace_path} HTTP/1.1\r\nHost: {served.host}\r\nOrigin: {UI_ORIGIN}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=20) as connection:
        connection.sendall(request.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.0 200")
    assert served.ask("GET")[1] == TRACE
    assert served.ended.result(timeout=20) is True
    assert capsys.readouterr().err == ""


def test_a_fetch_under_way_ends_with_the_server(trace: Path) -> None:
    """GIVEN a closed server, whose descriptor may belong to another file WHEN read THEN it raises."""
    with trace.open("rb") as stream:
        with TraceServer(stream, "run.pftrace", port=0) as server:
            assert server.trace_bytes(256) == TRACE[: 1 << 20]
        with pytest.raises(ConnectionAbortedError):
            server.trace_bytes(0)


def test_a_silent_connection_does_not_block_others(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port)):
        assert served.ask("GET")[1] == TRACE
        assert served.ended.result(timeout=20) is True


def test_it_ends_when_nobody_fetches_the_trace(served: Served) -> None:
    served.clock.now_s = IDLE_TIMEOUT_S + 1
    assert served.ended.result(timeout=20) is False


def test_only_requests_of_the_ui_restart_the_timeout(served: Served) -> None:
    preflight = [("Host", served.host), ("Origin", UI_ORIGIN), ("Access-Control-Request-Method", "GET")]
    served.clock.now_s = IDLE_TIMEOUT_S
    assert served.ask("OPTIONS", headers=preflight)[0].status == 204
    served.clock.now_s = 2 * IDLE_TIMEOUT_S
    assert served.ask("GET", "/guess")[0].status == 404
    assert not served.ended.done()
    served.clock.now_s += 1
    assert served.ended.result(timeout=20) is False


def test_a_taken_port_is_reported_with_the_remedy(served: Served, trace: Path) -> None:
    with trace.open("rb") as stream, pytest.raises(OutputError, match="is taken") as error:
        TraceServer(stream, "run.pftrace", port=served.server.port)
    assert f"ss -ltnp 'sport = :{served.server.port}'" in error.value.hint
