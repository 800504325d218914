"""Results of gates as commands of a GitHub workflow."""

from __future__ import annotations

from tests.unit.render.gates.checked import CHECK, HOSTILE_CHECK
from tracekit.render.gates import check_annotations


def test_what_fails_is_an_error_and_what_is_allowed_a_warning() -> None:
    lines = check_annotations(CHECK).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error", "::warning", "::notice"]
    assert lines[1] == "::error title=tracekit%3A exposed_comm_ratio.max::failed: 9.5%25; limit at most 5.0%25"
    assert lines[-1] == "::notice title=tracekit check::failed: 2 of 4 gates pass (tracekit.toml [gates])"


def test_a_gate_that_passes_has_no_annotation() -> None:
    assert "step_time.max:" not in check_annotations(CHECK)


def test_names_cannot_start_another_command() -> None:
    """GIVEN a line feed and an escape in the name of a run THEN each annotation is one line."""
    lines = check_annotations(HOSTILE_CHECK).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("::") for line in lines)
    assert "\x1b" not in "".join(lines)
    assert "%250A" in lines[0]  # what the name has of escapes stays text
