"""Tasks at the same place of a step, and transfers that are alike, have the same number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.unit.analysis.whatif.graph.device_rank import Comm, communication_of
from tracekit.analysis.whatif.graph.labels import numbers_of_places, numbers_of_transfers, signature_of_step
from tracekit.analysis.whatif.graph.operations import Interner, Interners


def test_steps_with_the_same_communication_have_one_signature() -> None:
    interner, kinds, sizes = Interner(), np.array([1, 2]), np.array([8, 8])

    assert signature_of_step(interner, kinds, sizes) == signature_of_step(interner, kinds.copy(), sizes.copy())
    assert signature_of_step(interner, kinds, sizes) != signature_of_step(interner, kinds[::-1], sizes)


def test_places_are_the_same_in_steps_with_the_same_signature() -> None:
    signature, slot = np.array([0, 0, 5, 5, 0, 0]), np.array([0, 1, 0, 1, 0, 1])
    numbers = numbers_of_places(Interner(), "host", signature, slot).tolist()

    assert numbers[:2] == numbers[4:]
    assert len(set(numbers)) == 4


def test_transfers_of_one_kind_and_size_are_alike_unless_sizes_differ_between_ranks() -> None:
    """GIVEN two transfers of 64 bytes and one of 8 THEN two are alike; if they are uneven, their places count."""
    given = communication_of(
        *(Comm(launch_us=at, end_us=at + 5, size_bytes=size) for at, size in ((0, 64), (9, 8), (20, 64)))
    )
    signature, slot = np.array([3, 3, 3]), np.array([0, 1, 2])
    kinds, classes = numbers_of_transfers(Interners(), given, signature, slot)
    uneven, _ = numbers_of_transfers(Interners(), replace(given, uneven=np.full(3, True)), signature, slot)

    assert kinds.tolist() == classes.tolist()
    assert (kinds[0] == kinds[2], kinds[0] == kinds[1]) == (True, False)
    assert len(set(uneven.tolist())) == 3
