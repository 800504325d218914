"""Which files does the server give, and to whom, when it serves the UI too, from a folder on this machine?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.watched_server import HOST, TRACE, UI, Served, serving


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run.pftrace"
    path.write_bytes(TRACE)
    return path


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    """A folder such as the UI's, that also contains links out of it."""
    secret = tmp_path / "secrets"
    secret.mkdir()
    (secret / "key.txt").write_text("secret")
    folder = tmp_path / "web_dist"
    (folder / "v1" / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<html>")
    (folder / "v1" / "engine.wasm").write_bytes(b"\0asm")
    (folder / "v1" / "engine_bundle.js").write_text("let x")
    (folder / "v1" / "assets" / "font.woff2").write_bytes(b"wOF2")
    (folder / "link.txt").symlink_to(secret / "key.txt")
    (folder / "folder").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture
def offline(trace: Path, ui: Path) -> Iterator[Served]:
    with serving(trace, ui) as served:
        yield served


def test_offline_page_and_trace_have_one_origin(offline: Served) -> None:
    origin = f"http://{offline.host}"
    assert offline.server.url == f"{origin}/#!/?url={origin}{offline.server.trace_path}"
    for path, kind, content in (
        ("/", "text/html; charset=utf-8", b"<html>"),
        ("/index.html", "text/html; charset=utf-8", b"<html>"),
        ("/v1/engine.wasm", "application/wasm", b"\0asm"),
        ("/v1/engine_bundle.js", "text/javascript; charset=utf-8", b"let x"),
        ("/v1/assets/font.woff2", "font/woff2", b"wOF2"),
    ):
        answer, body = offline.ask("GET", path, headers=[("Host", offline.host)])
        assert (answer.status, answer.headers["Content-Type"], body) == (200, kind, content)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in answer.headers
    with_origin = [("Host", offline.host), ("Origin", origin)]
    assert offline.ask("GET", headers=with_origin)[1] == TRACE


@pytest.mark.parametrize(
    "path",
    ["/secrets/key.txt", "/../secrets/key.txt", "/v1/../../secrets/key.txt", "/%2e%2e/secrets/key.txt",
     "/..%2fsecrets/key.txt", "//secrets/key.txt", "/v1//engine.wasm", "/v1/", "/v1", "/link.txt", "/folder/key.txt",
     "/pipe", "/./index.html", "/index.html?x", "/index.html%00", "\\index.html", "index.html", "/run.pftrace",
     "{root}/index.html"],
)  # fmt: skip
def test_offline_nothing_else_is_served(offline: Served, ui: Path, path: str) -> None:
    answer, body = offline.ask("GET", path.format(root=ui), headers=[("Host", offline.host)])
    assert (answer.status, body) == (404, b"")


def test_offline_a_link_that_replaces_a_file_is_not_followed(offline: Served, ui: Path) -> None:
    (ui / "index.html").unlink()
    (ui / "index.html").symlink_to(ui.parent / "secrets" / "key.txt")
    (ui / "v1" / "engine.wasm").unlink()
    for path in ("/", "/v1/engine.wasm"):
        assert offline.ask("GET", path, headers=[("Host", offline.host)])[0].status == 404


@pytest.mark.parametrize("path", ["/", None])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Host", "evil.example:{port}")], 421),
        ([HOST, ("Origin", "https://evil.example")], 403),
        ([HOST, UI], 403),
        ([HOST, ("Origin", "null")], 403),
    ],
)
def test_offline_a_wrong_host_or_origin_is_refused(
    offline: Served, path: str | None, headers: list[tuple[str, str]], status: int
) -> None:
    filled = [(name, value.format(port=offline.server.port)) for name, value in headers]
    assert offline.ask("GET", path, headers=filled)[0].status == status


def test_offline_it_ends_a_minute_after_the_last_request(offline: Served) -> None:
    page = [("Host", offline.host)]
    assert offline.ask("GET", headers=page)[1] == TRACE
    offline.clock.now_s = 59
    assert offline.ask("GET", "/v1/engine.wasm", headers=page)[0].status == 200
    offline.clock.now_s = 118
    assert offline.ask("GET", headers=page)[1] == TRACE  # the page was loaded again
    assert not offline.ended.done()
    offline.clock.now_s = 118 + 61
    assert offline.ended.result(timeout=20) is True
