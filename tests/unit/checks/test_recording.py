"""Whether recording works in the process of the tests."""

from __future__ import annotations

import pytest

from tracekit import checks as recording
from tracekit.capture.private_names.table import PRIVATE_NAMES
from tracekit.checks import try_torch


def test_torch_is_tried_for_real() -> None:
    parts = {part.name: part for part in try_torch()}
    assert list(parts) == ["torch", "profiler", "gpu", "distributed", "gloo", "nccl", "private names"]
    assert not [part for part in parts.values() if part.works is False]
    assert parts["gloo"].works is True
    assert parts["private names"].works is True


def test_each_private_name_that_torch_lacks_has_a_line_that_says_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = PRIVATE_NAMES[:2]
    monkeypatch.setattr(recording, "missing_names", lambda: list(lost))

    lines = [part for part in try_torch() if part.name == "private names"]

    assert [part.works for part in lines] == [None, None]
    for part, name in zip(lines, lost, strict=True):
        assert part.detail.endswith(f" has no {name.path}: {name.fallback}")


def test_private_names_that_cannot_be_looked_for_are_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(recording, "missing_names", fail)

    (part,) = (part for part in try_torch() if part.name == "private names")

    assert part.works is None
    assert part.detail == "not known: RuntimeError: broken"
