"""The table of checks: every check with what it finds."""

from __future__ import annotations

from docs.reference.checks import check_pages
from tracekit.health.rank_checks import RANK_CHECKS
from tracekit.health.run_checks import CLOCK_CHECKS, RUN_CHECKS
from tracekit.model.notes import NOTE_IDS


def test_every_check_is_in_the_table_with_what_it_finds() -> None:
    page = check_pages()
    for check in (*RANK_CHECKS, *RUN_CHECKS, *CLOCK_CHECKS):
        assert check.id in NOTE_IDS
        assert f"| `{check.id}` | {check.text} |" in page


def test_a_check_of_a_recording_has_an_id_of_its_own() -> None:
    ids = [check.id for check in RANK_CHECKS]
    assert len(set(ids)) == len(ids)
