"""The order in which pipeline schedules run their actions, and which schedule an order belongs to.

docs/definitions.md has the names of schedules. Stages lie on p ranks in a loop (stage s on rank s mod p), or in a V
(from the first rank to the last and back). Sources:

* GPipe: Huang et al. 2019.
* 1F1B and its interleaved form: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
  SC 2021.
* Looped breadth-first: Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023.
* Split backwards: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024.
* DualPipeV: DeepSeek-AI and Sea AI Lab, 2025.

The zero bubble orders follow from measured times or heuristics. They are recognised by the places of the stages, and by
whether backwards are split always (I, W), never (B), or sometimes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Order = Sequence[tuple[str, int, int]]
"""What one rank runs, one action after another: kind, stage and microbatch."""

ORDERED_SCHEDULES = ("gpipe", "1f1b", "interleaved1f1b", "loopedbfs")
"""Schedules whose order follows from the numbers of ranks, virtual stages and microbatches alone."""


def order_of_schedule(schedule: str, ranks: int, virtual_stages: int, microbatches: int) -> list[Order] | None:
    """Return the order of each rank; None if the schedule takes no such number of virtual stages or microbatches."""
    several = schedule in {"interleaved1f1b", "loopedbfs"}
    rounds = max(microbatches // ranks, 1)
    if several == (virtual_stages == 1) or (schedule == "interleaved1f1b" and microbatches % rounds):
        return None
    orders: list[Order] = []
    for rank in range(ranks):
        stages = [rank + ranks * chunk for chunk in range(virtual_stages)]
        if schedule == "interleaved1f1b":
            together = microbatches // rounds
            forward = _interleaved(stages, microbatches, together)
            backward = _interleaved(stages[::-1], microbatches, together)
            ahead = (virtual_stages - 1) * together + 2 * (ranks - 1 - rank)
        else:
            forward = [(stage, number) for stage in stages for number in range(microbatches)]
            backward = [(stage, number) for stage in stages[::-1] for number in range(microbatches)]
            if schedule == "loopedbfs":
                backward = [(stage, number) for stage in stages[::-1] for number in reversed(range(microbatches))]
            ahead = ranks - 1 - rank if schedule == "1f1b" else len(forward)
        orders.append(list(_one_forward_one_backward(forward, backward, ahead)))
    return orders


def schedule_of_order(orders: Sequence[Order]) -> str:
    """Return the name of the schedule, `unknown` where none, or more than one, fits.

    orders: of the ranks of one pipeline, by first stage.
    """
    ranks = len(orders)
    stages = [sorted({stage for _, stage, _ in order}) for order in orders]
    virtual_stages = len(stages[0]) if stages else 0
    count = ranks * virtual_stages
    kinds = {kind for order in orders for kind, _, _ in order}
    microbatches = 1 + max((number for order in orders for _, _, number in order), default=-1)
    if not virtual_stages or ranks < 2:
        return "unknown"
    in_loop = stages == [[rank + ranks * chunk for chunk in range(virtual_stages)] for rank in range(ranks)]
    in_v = stages == [[rank, count - 1 - rank] for rank in range(ranks)]
    if kinds == {"F"}:
        return "gpipe" if virtual_stages == 1 and in_loop else "unknown"
    if kinds == {"F", "B"} and in_loop:
        fit = [slug for slug in ORDERED_SCHEDULES if _fits(orders, slug, virtual_stages, microbatches)]
        return fit[0] if len(fit) == 1 else "unknown"
    if kinds == {"F", "I", "W"} and virtual_stages > 1 and in_loop:
        return "interleavedzerobubble"
    if kinds == {"F", "I", "W"} and in_v:
        return "zbv"
    return "dualpipev" if kinds == {"F", "B", "I", "W"} and in_v else "unknown"


def _fits(orders: Sequence[Order], schedule: str, virtual_stages: int, microbatches: int) -> bool:
    expected = order_of_schedule(schedule, len(orders), virtual_stages, microbatches)
    if expected is None:
        return False
    if schedule in {"gpipe", "loopedbfs"}:  # these may run their backwards in either direction
        return all(_passes(order) == _passes(other) for order, other in zip(orders, expected, strict=True))
    return [list(order) for order in orders] == expected


def _passes(order: Order) -> tuple[list[tuple[int, int]], list[int], set[tuple[int, int]]] | None:
    """Return the forwards, the stages of the backwards in order, and the backwards as a set.

    None if a forward runs after a backward.
    """
    kinds = [kind for kind, _, _ in order]
    forwards = kinds.count("F")
    if "F" in kinds[forwards:]:
        return None
    backwards = [(stage, number) for _, stage, number in order[forwards:]]
    return [(s, n) for _, s, n in order[:forwards]], [stage for stage, _ in backwards], set(backwards)


def _interleaved(stages: Sequence[int], microbatches: int, together: int) -> list[tuple[int, int]]:
    """Return stages and microbatches: `together` microbatches run through each stage in turn, then the next ones."""
    return [
        (stage, number)
        for first in range(0, microbatches, together)
        for stage in stages
        for number in range(first, first + together)
    ]


def _one_forward_one_backward(
    forward: Sequence[tuple[int, int]], backward: Sequence[tuple[int, int]], ahead: int
) -> Iterator[tuple[str, int, int]]:
    """Yield `ahead` forwards, then one forward and one backward in turn, then the rest of the backwards."""
    yield from (("F", *action) for action in forward[:ahead])
    for number, action in enumerate(backward):
        yield from (("F", *other) for other in forward[ahead + number : ahead + number + 1])
        yield ("B", *action)
