"""`tracekit open`: what it serves, what it prints, and how it ends. The tests take the part of the browser."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from tests.places import DATA
from tests.unit.cli.opening import Browser, arguments_of, open_, watched_browser
from tracekit import serve
from tracekit.api import analyze
from tracekit.cli import cli
from tracekit.report.step_picture import step_picture
from tracekit.trace_processor import choice

DDP = DATA / "ddp_slow_rank"
READY = b"\x0a\x02\x08\x01"  # a Perfetto trace of one packet


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    return watched_browser(monkeypatch)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    path = tmp_path / "run.pftrace"
    path.write_bytes(READY)
    return path


def test_a_run_is_merged_and_served_to_the_page(browser: Browser) -> None:
    result = open_(DDP)
    assert result.exit_code == 0, result.output
    (url,) = browser.opened
    page, arguments = arguments_of(url)
    assert page == "https://ui.perfetto.dev"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]+/ddp_slow_rank\.pftrace", arguments["url"])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{12}", result.stdout.splitlines()[1])
    assert len(browser.got) > 100_000
    assert b"compute" in browser.got
    assert "ssh" not in result.stdout
    lines = result.stdout.splitlines()
    assert lines[-2:] == [
        "The page has the trace.", f"Next: tracekit query {DDP} 'select * from tracekit_steps'",
    ]  # fmt: skip
    assert result.stderr == ""


def test_the_address_of_the_trace_is_on_no_command_line(browser: Browser, ready: Path) -> None:
    """GIVEN other users, who can list the processes THEN they see the name of a file that is theirs not to read."""
    assert open_(ready).exit_code == 0
    (argument,) = browser.arguments
    assert argument.startswith("file:///")
    secret = arguments_of(browser.opened[0])[1]["url"].split("/")[-2]
    assert len(secret) == 43
    assert secret not in argument
    assert not Path(urlsplit(argument).path).exists()


def test_the_page_opens_on_the_first_finding(browser: Browser) -> None:
    """GIVEN a rank that another waits for THEN both are open, findings, steps, waits are pinned, and the time is that
    of the wait, with as much before and after it."""
    assert open_(DDP).exit_code == 0
    arguments = arguments_of(browser.opened[0])[1]
    commands = [(each["id"], each["args"][0]) for each in json.loads(arguments["startupCommands"])]
    pinned = ["^findings( .*)?$", "^steps( .*)?$", *(f"^rank {rank} waits( .*)?$" for rank in (0, 1))]
    assert commands == [
        ("dev.perfetto.ExpandTracksByRegex", "^(run|analysis|rank (0|1))( .*)?$"),
        *(("dev.perfetto.PinTracksByRegex", pattern) for pattern in pinned),
    ]
    picture = step_picture(analyze(DDP), most_rows=4)
    assert picture is not None
    assert picture.arrow is not None
    start_ns, end_ns = (picture.begin_ns + edge_ns for edge_ns in (picture.arrow.start_ns, picture.arrow.end_ns))
    assert int(arguments["visStart"]) == start_ns - (end_ns - start_ns)
    assert start_ns < end_ns < int(arguments["visEnd"]) <= end_ns + (end_ns - start_ns)


@pytest.mark.parametrize("packed", [False, True])
def test_a_perfetto_trace_is_served_unchanged(browser: Browser, ready: Path, packed: bool) -> None:
    if packed:
        ready.write_bytes(gzip.compress(READY))
    result = open_(ready)
    assert result.exit_code == 0, result.output
    assert browser.got == ready.read_bytes()
    assert browser.opened[0].endswith("/run.pftrace")  # it is not tracekit's, so nothing is said of its tracks
    assert "selected" in open_(ready, "--ranks", "0").stderr
    assert "selected" in open_(ready, "--steps", "4").stderr


@pytest.mark.parametrize("name", ["run.pftrace", "run.pftrace.gz"])
def test_a_merged_trace_in_a_file_opens_as_its_run_does(browser: Browser, tmp_path: Path, name: str) -> None:
    """GIVEN a run and the file that it was merged to THEN both open with the same tracks pinned, at the same time."""
    assert CliRunner().invoke(cli, ["merge", str(DDP), "-o", str(tmp_path / name)]).exit_code == 0
    assert open_(DDP).exit_code == 0
    assert open_(tmp_path / name).exit_code == 0
    of_run, of_file = (arguments_of(url)[1] for url in browser.opened)
    assert of_file.pop("url") != of_run.pop("url")
    assert of_file == of_run
    assert of_file.keys() == {"visStart", "visEnd", "startupCommands"}


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n" + bytes(100), b"hello\nworld\n" * 1000, pickle.dumps({})])
@pytest.mark.parametrize("command", [["analyze"], ["merge"], ["open", "--print-url"]])
def test_a_file_of_another_kind_is_no_trace(tmp_path: Path, command: list[str], content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    result = CliRunner().invoke(cli, [*command, str(path)])
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith(f"Error: {path}: not a trace (no traceEvents in it). Hint: give Chrome-trace JSON")


def test_print_url_opens_no_browser(browser: Browser, ready: Path) -> None:
    result = open_(ready, "--print-url")
    assert (result.exit_code, browser.opened, browser.got) == (0, [], READY)
    assert "  ssh -N -L 9001:127.0.0.1:9001 " in result.stdout
    lines = result.stdout.splitlines()
    assert lines[1].startswith("http://127.0.0.1:")
    assert max(map(len, lines[:-1])) <= 80
    assert "It waits for 10 minutes; Ctrl-C ends it." in lines


@pytest.mark.parametrize("reason", ["no display", "it does not start"])
def test_without_a_browser_the_address_is_printed(
    browser: Browser, ready: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "no display":
        for variable in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
            monkeypatch.delenv(variable, raising=False)
    else:
        monkeypatch.setattr(webbrowser, "open_new_tab", lambda url: False)
    result = open_(ready)
    assert (result.exit_code, browser.opened, browser.got) == (0, [], READY)
    assert "  ssh -N -L" in result.stdout


def test_offline_opens_the_bundled_ui(
    browser: Browser, ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ui = tmp_path / "web_dist"
    ui.mkdir()
    (ui / "index.html").write_text("<html>")
    monkeypatch.setattr(choice, "bundled_ui", lambda: ui)
    monkeypatch.setattr(serve, "_LINGER_S", 0.0)
    result = open_(ready, "--offline")
    assert (result.exit_code, browser.got) == (0, READY)
    page, arguments = arguments_of(browser.opened[0])
    assert page.startswith("http://127.0.0.1:")
    assert arguments["url"].startswith(page)


def ending(served: Callable[[serve.TraceServer], bool]) -> type[serve.TraceServer]:
    """Return a server class that serves nothing and ends as `served` says."""

    class Server(serve.TraceServer):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options, port=0)  # type: ignore[arg-type,misc]

        def serve_until_fetched(self) -> bool:
            return served(self)

    return Server


def interrupt(server: serve.TraceServer) -> bool:
    raise KeyboardInterrupt


def interrupt_when_fetched(server: serve.TraceServer) -> bool:
    server.mark_fetched()
    raise KeyboardInterrupt


TRY_AGAIN = "type it again; --print-url is for a browser elsewhere, --offline for no network"


@pytest.mark.parametrize(
    ("served", "exit_code", "stderr"),
    [
        (interrupt, 130, "Interrupted.\n"),
        (interrupt_when_fetched, 0, ""),
        (lambda server: False, 3, f"Error: nobody fetched the trace in 10 minutes. Hint: {TRY_AGAIN}\n"),
    ],
)  # fmt: skip
def test_endings(
    ready: Path, monkeypatch: pytest.MonkeyPatch, served: Callable[[serve.TraceServer], bool], exit_code: int,
    stderr: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(serve, "TraceServer", ending(served))
    result = open_(ready, "--print-url")
    assert (result.exit_code, result.stderr) == (exit_code, stderr)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x1f\x8b damaged", b"not there"])
def test_a_file_without_a_trace_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank0.json"
    if content != b"not there":
        path.write_bytes(content)
    result = open_(path)
    assert (result.exit_code, result.stdout) == (3, "")
    assert str(path) in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_files_are_left_behind(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert open_(DDP).exit_code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["open", "query", "analyze", "merge"])
def test_a_path_that_cannot_be_looked_at_is_an_input_error(command: str) -> None:
    """GIVEN a name that is too long for the file system, as for a folder that may not be entered."""
    arguments = [command, "a" * 300, *(["select 1"] if command == "query" else [])]
    result = CliRunner().invoke(cli, arguments, prog_name="tracekit")
    assert result.exit_code == 3
    assert result.stderr == f"Error: {'a' * 300}: File name too long. Hint: check the path and its permissions\n"
