"""$TRACEKIT_NATIVE: which of the compiled and the portable parts are used."""

from __future__ import annotations

import pytest

from tracekit.errors import UsageError
from tracekit.native_choice import VARIABLE, use_native


@pytest.mark.parametrize(
    ("value", "is_built", "expected"),
    [(None, True, True), (None, False, False), ("", True, True), ("0", True, False), ("0", False, False),
     ("1", True, True)],
)  # fmt: skip
def test_a_compiled_part_is_used_where_it_was_built_and_not_refused(
    monkeypatch: pytest.MonkeyPatch, value: str | None, is_built: bool, expected: bool
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)

    assert use_native("decoder", is_built=is_built) is expected


def test_a_compiled_part_that_was_not_built_cannot_be_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")

    with pytest.raises(UsageError, match="TRACEKIT_NATIVE=1: the native decoder was not built") as failure:
        use_native("decoder", is_built=False)
    assert "tracekit doctor" in failure.value.hint


@pytest.mark.parametrize("value", ["yes", "2", "portable"])
def test_other_values_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)

    with pytest.raises(UsageError, match=f"TRACEKIT_NATIVE={value}: neither 0 nor 1"):
        use_native("decoder", is_built=True)
