"""A process that only serves remote calls: it warns about what it cannot record, and continues to serve."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tracekit.capture.output.disk import DiskBudget
from tracekit.capture.rpc.serving import _Server
from tracekit.capture.warn import CaptureWarning


def test_it_warns_once_if_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    server = _Server(tmp_path, 0, DiskBudget())
    monkeypatch.setattr(threading.Thread, "start", refuse)

    with pytest.warns(CaptureWarning, match="is not recorded: can't start new thread") as warned:  # noqa: PT031
        server.notify()
        server.notify()

    assert len(warned) == 1
