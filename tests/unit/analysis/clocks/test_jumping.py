"""Which clocks jump when, of ranks whose collectives end together and whose machines have one clock each."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.clocks.planted import BEGIN_NS, Clock, PlantedRanks
from tracekit.analysis.clocks.align import align
from tracekit.analysis.clocks.jumping import RankJump, jumping_clocks

MS = 1_000_000
UNNAMED = "localhost"


def found_jumps(machines: list[str], jumps_ns: dict[str, list[tuple[int, int]]]) -> dict[int, tuple[RankJump, ...]]:
    """Return what is found in 100 ms with a collective of all ranks each ms; jumps are (when, by how much)."""
    clocks = [Clock(offset_ns=1000 * rank, jumps=tuple(jumps_ns.get(name, ()))) for rank, name in enumerate(machines)]
    hosts = [UNNAMED if name.startswith("?") else name for name in machines]
    ranks = PlantedRanks(clocks=clocks, begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 100 * MS, hosts=hosts)
    late_ns = np.random.default_rng(4).integers(0, 3000, (len(machines), 100))
    ranks.collectives(range(len(machines)), end_ns=BEGIN_NS + np.arange(100) * MS + MS // 2, late_ns=late_ns)
    models, _ = align(ranks.summaries(), ranks.matched_groups(), ranks.matched_messages())
    return jumping_clocks(ranks.summaries(), models)


def at(true_ms: float) -> int:
    return BEGIN_NS + round(true_ms * MS)


@pytest.mark.parametrize("by_ns", [500 * MS, 300_000, -300_000])
@pytest.mark.parametrize("machine", ["a", "b", "c"])
def test_of_three_machines_it_is_known_which_jumps_and_between_which_collectives(machine: str, by_ns: int) -> None:
    machines = ["a", "a", "b", "b", "b", "c"]

    found = found_jumps(machines, {machine: [(at(40), by_ns)]})

    assert list(found) == [rank for rank, name in enumerate(machines) if name == machine]
    for rank, (jump,) in found.items():
        begin_ns, end_ns = jump.between_ns
        before_ns, behind_ns = at(39.5) + 1000 * rank, at(40.5) + 1000 * rank + by_ns
        assert begin_ns == pytest.approx(min(before_ns, behind_ns), abs=10_000)
        assert end_ns == pytest.approx(max(before_ns, behind_ns), abs=10_000)
        assert jump.by_ns == pytest.approx(by_ns, abs=10_000)
        assert jump.or_ranks == frozenset()


@pytest.mark.parametrize(
    ("machines", "jumps"),
    [
        (["a", "a", "b", "b"], "a"),
        (["a", "a", "b", "b"], "b"),
        (["a", "b", "b", "b"], "b"),
        (["?1", "?1", "?2", "?2", "?2", "?2", "?2"], "?2"),
    ],
)
def test_of_two_machines_either_may_be_the_one(machines: list[str], jumps: str) -> None:
    found = found_jumps(machines, {jumps: [(at(40), 5 * MS)]})

    sides = {name: frozenset(rank for rank, of in enumerate(machines) if of == name) for name in set(machines)}
    assert list(found) == list(range(len(machines)))
    for rank, (jump,) in found.items():
        assert jump.by_ns == pytest.approx(5 * MS if machines[rank] == jumps else -5 * MS, abs=10_000)
        assert jump.or_ranks == next(side for side in sides.values() if rank not in side)


def test_a_single_rank_of_no_known_machine_is_the_one_that_jumps() -> None:
    assert list(found_jumps(["?1", "?2", "?1", "?1"], {"?2": [(at(40), 5 * MS)]})) == [1]


def test_each_jump_is_told_by_itself() -> None:
    jumps_ns = {"a": [(at(20), 5 * MS)], "b": [(at(50), 300_000), (at(70), -400_000)], "c": [(at(50), 2 * MS)]}
    found = found_jumps(["a", "a", "b", "c", "d", "e", "f", "g"], jumps_ns)

    assert {rank: len(jumps) for rank, jumps in found.items()} == {0: 1, 1: 1, 2: 2, 3: 1}
    assert [jump.by_ns for jump in found[2]] == pytest.approx([300_000, -400_000], abs=10_000)
    assert not any(jump.or_ranks for jumps in found.values() for jump in jumps)


def test_clocks_that_are_all_set_at_once_tell_of_none_that_it_is_right() -> None:
    found = found_jumps(["a", "b", "c", "d"], {"b": [(at(50), 3 * MS)], "c": [(at(50), -MS)], "d": [(at(50), 9 * MS)]})

    assert list(found) == [0, 1, 2, 3]
    assert all(jump.or_ranks for jumps in found.values() for jump in jumps)
