"""`tracekit open` beside a browser that fetches what it is given."""

from __future__ import annotations

import html
import re
import threading
import urllib.request
import webbrowser
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import CliRunner, Result

from tracekit import serve
from tracekit.cli import cli


def arguments_of(url: str) -> tuple[str, dict[str, str]]:
    """Return the page of an address of Perfetto's UI, and its arguments, as the UI reads them."""
    page, _, arguments = url.partition("/#!/?")
    return page, dict(parse_qsl(arguments, strict_parsing=True))


class Browser:
    """A browser that fetches the trace of each address that it opens, as Perfetto's UI does."""

    def __init__(self) -> None:
        self.arguments: list[str] = []  # of its command line
        self.opened: list[str] = []
        self._got = b""
        self._fetching: list[threading.Thread] = []

    @property
    def got(self) -> bytes:
        """Return the last trace, after waiting for all of it."""
        for thread in self._fetching:
            thread.join()
        return self._got

    def open(self, argument: str) -> bool:
        self.arguments.append(argument)
        page = Path(urlsplit(argument).path)
        assert page.stat().st_mode & 0o777 == 0o600
        (url,) = re.findall('content="0; url=([^"]*)"', page.read_text())
        url = html.unescape(url)
        self.opened.append(url)
        self.fetch(url)
        return True

    def fetch(self, url: str) -> None:
        page, arguments = arguments_of(url)

        def fetch() -> None:
            request = urllib.request.Request(arguments["url"], headers={"Origin": page})
            with urllib.request.urlopen(request) as answer:
                self._got = answer.read()

        self._fetching.append(threading.Thread(target=fetch))
        self._fetching[-1].start()


def watched_browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    """Return a browser on this machine. The server uses any free port."""
    found = Browser()
    monkeypatch.setattr(webbrowser, "open_new_tab", found.open)
    monkeypatch.setenv("BROWSER", "test")
    monkeypatch.delenv("TRACEKIT_DEBUG", raising=False)

    class Server(serve.TraceServer):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options, port=0)  # type: ignore[arg-type,misc]

        def serve_until_fetched(self) -> bool:
            if not found.opened:  # as if a user opened the printed address
                found.fetch(self.url)
            return super().serve_until_fetched()

    monkeypatch.setattr(serve, "TraceServer", Server)
    return found


def open_(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["open", *map(str, arguments)], prog_name="tracekit")
