"""$TRACEKIT_NATIVE: which of the compiled and the portable parts are used."""

from __future__ import annotations

import importlib.util
import sys
import textwrap

import pytest

from tests.components import require, require_module
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


@pytest.mark.parametrize("name", ["tracekit.read.decode.native._scanner", "tracekit.render.perfetto._encoder"])
def test_compiled_parts_are_not_for_subinterpreters(name: str) -> None:
    """GIVEN an interpreter beside the main one THEN a compiled part is not imported there."""
    interpreters = require_module("_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters")
    spec = importlib.util.find_spec(name)
    require("the native parts", spec, "there was no compiler")
    assert spec is not None
    script = f"""
        import importlib.util
        spec = importlib.util.spec_from_file_location({name!r}, {spec.origin!r})
        try:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except ImportError as error:
            assert "interpreter" in str(error), error
        else:
            raise AssertionError("imported")
        """
    beside = interpreters.create()
    try:
        interpreters.run_string(beside, textwrap.dedent(script))
    finally:
        interpreters.destroy(beside)
