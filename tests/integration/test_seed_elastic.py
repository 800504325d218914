"""A job that torchrun restarted, recorded: its optimizer, SGD, has no count of the steps that its checkpoint holds."""

from __future__ import annotations

from tests.integration.recorded import result_of
from tests.places import DATA


def test_steps_repeated_after_a_checkpoint_of_sgd_are_unknown_not_all() -> None:
    first, second = result_of(DATA / "seed" / "elastic")["attempts"]

    assert (first["ending"], first["ended_ranks"], first["last_step"]) == ("killed", [1], 14)
    assert (second["first_step"], second["repeated_steps"], second["repeated_ns"]) == (None, None, None)
    parts = ("detection_ns", "rendezvous_ns", "startup_ns", "reload_ns")
    assert second["lost_ns"] == sum(second[part] for part in parts) > 0
