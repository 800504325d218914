"""Whether recording works in the process of the tests."""

from __future__ import annotations

import pytest

from tracekit import checks as recording
from tracekit.capture.private_names.table import PRIVATE_NAMES
from tracekit.checks import try_torch


def test_torch_is_tried_for_real() -> None:
    parts = {part.name: part for part in try_torch()}
    names = ("profiler", "gpu", "distributed", "gloo", "nccl", "private names")
    assert list(parts) == [f"torch: {name}" for name in names]
    assert not [part for part in parts.values() if part.state == "problem"]
    assert parts["torch: gloo"].state == "ok"
    assert parts["torch: private names"].state == "ok"


def test_each_private_name_that_torch_lacks_has_a_line_that_says_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = PRIVATE_NAMES[:2]
    monkeypatch.setattr(recording, "missing_names", lambda: list(lost))

    lines = [part for part in try_torch() if part.name == "torch: private names"]

    assert [part.state for part in lines] == ["absent", "absent"]
    for part, name in zip(lines, lost, strict=True):
        assert part.found.endswith(f" has no {name.path}: {name.fallback}")


def test_private_names_that_cannot_be_looked_for_are_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(recording, "missing_names", fail)

    (part,) = (part for part in try_torch() if part.name == "torch: private names")

    assert part.state == "absent"
    assert part.found == "not known: RuntimeError: broken"
