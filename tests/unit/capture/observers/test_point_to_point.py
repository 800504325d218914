"""Batches of messages, as a backend with coalescing runs them. The group is a stub: Gloo has no batches."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.groups import GroupTable
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.point_to_point import PointToPointObserver
from tracekit.model.spans import COALESCED_SPAN


class StubGroup:
    """A group of ranks 0 and 1 whose batches launch one kernel as they end."""

    def __init__(self) -> None:
        self.queued: list[str] = []
        self.launched: list[list[str]] = []

    def _start_coalescing(self, _device: object) -> None:
        self.queued.clear()

    def send(self, _tensors: Any, peer: int, _tag: int) -> None:
        self.queued.append(f"send to {peer}")

    def recv(self, _tensors: Any, peer: int, _tag: int) -> None:
        self.queued.append(f"recv from {peer}")

    def _end_coalescing(self, _device: object) -> str:
        if not self.queued:
            raise RuntimeError("nothing is queued")
        self.launched.append(list(self.queued))
        return "work"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to spans, in order."""
    happened: list[str] = []

    class Span:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            happened.append(f"begin {self.name}")

        def __exit__(self, *_: object) -> None:
            happened.append(f"end {self.name}")

    monkeypatch.setattr("tracekit.capture.observers.point_to_point.span", Span)
    return happened


@pytest.fixture
def observer(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[PointToPointObserver]:
    monkeypatch.setattr(torch.distributed, "ProcessGroup", StubGroup)
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", lambda _: [0, 1])
    observer = PointToPointObserver()
    observer.attach(LiveObjects())
    yield observer
    observer.detach(LiveObjects())


TENSOR = SimpleNamespace(numel=lambda: 10, element_size=lambda: 4)


def test_a_batch_has_a_span_from_its_begin_to_its_end_and_a_record_for_each_message(
    observer: PointToPointObserver, spans: list[str]
) -> None:
    group = StubGroup()

    group._start_coalescing("device")
    group.send([TENSOR], 1, 0)
    group.recv([TENSOR], 1, 0)
    assert spans == [f"begin {COALESCED_SPAN}"]
    assert group._end_coalescing("device") == "work"

    assert spans == [f"begin {COALESCED_SPAN}", f"end {COALESCED_SPAN}"]
    assert group.launched == [["send to 1", "recv from 1"]]
    groups = GroupTable()
    groups._add(group, "0", "default_pg", "nccl", "world")
    draft = MetadataDraft(groups=groups)
    observer.contribute(draft)
    assert [(record.direction, record.peer, record.size_bytes) for record in draft.p2p] == [
        ("send", 1, 40),
        ("recv", 1, 40),
    ]


def test_a_batch_that_fails_ends_its_span(observer: PointToPointObserver, spans: list[str]) -> None:
    group = StubGroup()
    group._start_coalescing("device")

    with pytest.raises(RuntimeError, match="nothing is queued"):
        group._end_coalescing("device")

    assert spans == [f"begin {COALESCED_SPAN}", f"end {COALESCED_SPAN}"]


def test_a_batch_that_an_error_leaves_open_ends_with_the_recording(
    observer: PointToPointObserver, spans: list[str]
) -> None:
    StubGroup()._start_coalescing("device")

    observer.detach(LiveObjects())

    assert spans == [f"begin {COALESCED_SPAN}", f"end {COALESCED_SPAN}"]
