"""Texts of a run are harmless for a page."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.render.page.contract import MOST_CHARACTERS, MOST_IN_COMMAND
from tracekit.render.page.size import inert, script_json

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(ANY_JSON)
def test_no_text_can_end_the_script_element(value: object) -> None:
    """GIVEN any plain values THEN their JSON has no `<` and only ASCII, and reads back as the values."""
    text = script_json(value)

    assert "<" not in text
    assert text.isascii()
    assert json.loads(text) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb", "a\\u202eb"),
        ("a\x00b", "a\\x00b"),
        ("two\nlines", "two\nlines"),
        ("größe 层", "größe 层"),
        ("<b>bold</b>", "<b>bold</b>"),
    ],
)
def test_control_and_format_characters_are_visible(text: str, shown: str) -> None:
    assert inert({text: [text]}) == {shown: [shown]}


def test_long_texts_are_cut() -> None:
    (cut,) = inert(["x" * 1_000_000])

    assert cut == "x" * (MOST_CHARACTERS - 1) + "…"
    assert inert(["x" * MOST_CHARACTERS]) == ["x" * MOST_CHARACTERS]


def test_a_command_is_cut_later_than_other_texts() -> None:
    """A command without its end would be another command."""
    command = "tracekit open " + "d" * 4096

    assert inert({"open_command": command})["open_command"] == command
    assert len(inert({"open_command": "x" * 10**6})["open_command"]) == MOST_IN_COMMAND


@pytest.mark.parametrize("value", [None, True, 3, 0.1, 2**60, [1, 2.5, None], {"a": {"b": []}}])
def test_values_that_are_no_texts_stay_as_they_are(value: object) -> None:
    assert inert(value) == value


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json([float("nan")])
