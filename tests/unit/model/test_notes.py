"""Notes: their kinds, and the rank they name."""

from __future__ import annotations

import pytest

from tracekit.model.notes import Note


def test_a_note_has_a_known_kind_and_takes_its_rank_once() -> None:
    note = Note(kind="truncated", severity="warning", text="a.json: cut off", file="a.json")
    assert note.about_rank(None) is note
    about = note.about_rank(3)
    assert (about.rank, about.text) == (3, "rank 3: a.json: cut off")
    assert about.about_rank(4) is about
    with pytest.raises(ValueError, match="oops"):
        Note(kind="oops", severity="info", text="")
