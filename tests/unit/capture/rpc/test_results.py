"""Which tensors a served call returns, whatever they are packed in."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.capture.rpc import services as module
from tracekit.capture.rpc.services import note_result, results

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_results", {})


def shapes_of(value: Any) -> list[list[int]] | None:
    found = results([note_result(value)])
    return sorted(found[0].shapes) if found else None


def test_tensors_are_found_in_what_servers_return() -> None:
    weight, bias = torch.zeros(2, 3), torch.zeros(2)
    linear = torch.nn.Linear(3, 2)

    for value in ([weight, bias], (weight, [bias], 7), {"w": weight, "b": bias}, linear, linear.state_dict()):
        assert shapes_of(value) == [[2], [2, 3]]


@pytest.mark.parametrize("value", [None, 3, "text", [1.0, None], {}])
def test_without_tensors_there_is_nothing_to_note(value: Any) -> None:
    assert note_result(value) is None


def test_equal_shapes_are_kept_once() -> None:
    keys = [note_result([torch.zeros(2), torch.ones(3)]) for _ in range(3)] + [note_result(torch.zeros(4)), None]

    assert [result.shapes for result in results(keys)] == [[[3], [2]], [[4]]]


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_RESULTS", 2)
    monkeypatch.setattr(module, "_MAX_TENSORS", 3)

    assert [note_result(torch.zeros(size)) is None for size in (1, 2, 3, 1)] == [False, False, True, False]
    assert note_result([torch.zeros(1)] * 4) is None
