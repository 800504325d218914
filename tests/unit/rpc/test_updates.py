"""How stale gradients are: planted orders of pulls and updates, whose staleness is counted by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from tests.unit.rpc.simulated import Exchange
from tracekit.model.metadata import RpcUpdate
from tracekit.rpc.updates import find_updates


def staleness(exchange: Exchange, backward_ns: Mapping[int, Sequence[int]], rank: int = 1) -> list[int | None]:
    updates = find_updates(exchange.joined(), backward_ns)
    return [update.staleness for update in updates if update.rank == rank]


def test_staleness_counts_the_updates_between_pull_and_push() -> None:
    """GIVEN a slow trainer 1, during whose step trainer 2 pushes three times."""
    exchange = Exchange()
    exchange.pull(1, 0)
    for at_ns in (20, 60, 100):
        exchange.pull(2, at_ns)
        exchange.push(2, at_ns + 20)
    exchange.push(1, 200)
    backward_ns = {1: [150], 2: [35, 75, 115]}

    assert staleness(exchange, backward_ns) == [3]
    assert staleness(exchange, backward_ns, rank=2) == [0, 0, 0]


def test_every_number_of_an_update_is_kept() -> None:
    exchange = Exchange()
    exchange.pull(1, 0, updates_meanwhile=1)
    exchange.push(2, 20)
    exchange.push(1, 40, step=7)

    update = next(update for update in find_updates(exchange.joined(), {1: [30]}) if update.rank == 1)

    assert (update.step, update.callee, update.function, update.pull) == (7, "ps", "push", "pull")
    assert (update.version, update.pulled_version, update.staleness, update.uncertain) == (1, 0, 1, 1)
    assert update.unknown is None


def test_a_pull_for_the_next_step_is_not_that_of_this_gradient() -> None:
    """GIVEN a pull that is issued ahead, served before the push, and waited for in the next step."""
    exchange = Exchange()
    exchange.pull(1, 0)
    exchange.push(2, 20)
    exchange.pull(1, 40, waited_ns=100)  # sees the update of trainer 2
    exchange.push(1, 70)
    exchange.push(2, 120)
    exchange.push(1, 170, step=1)

    assert staleness(exchange, {1: [15, 140]}) == [1, 2]


def test_a_push_that_returns_the_parameters_is_the_next_gradients_pull() -> None:
    exchange = Exchange()
    exchange.call(1, "exchange", 0, update=True, returns="parameters")
    exchange.call(2, "exchange", 20, update=True, returns="parameters")
    exchange.call(1, "exchange", 40, step=1, update=True, returns="parameters")

    updates = [update for update in find_updates(exchange.joined(), {1: [15, 35]}) if update.rank == 1]

    assert [update.staleness for update in updates] == [None, 1]
    assert updates[0].unknown == "no call before the backward pass is seen to return the parameters"


def test_a_synchronous_server_applies_the_gradients_of_all_in_the_last_call() -> None:
    """GIVEN calls of trainer 1 that return a future, which trainer 2's call completes after the optimizer's step."""
    exchange = Exchange()
    for step, at_ns in enumerate((0, 100, 200)):
        exchange.call(1, "exchange", at_ns, step=step, lasts_ns=50, returns="parameters")
        released = exchange.call(2, "exchange", at_ns + 40, step=step, update=True, returns="parameters")
        waiting = exchange.calls[1][-1]
        assert waiting.service is not None
        service = structs.replace(waiting.service, released_by=released, versions=[exchange.version])
        exchange.calls[1][-1] = replace(waiting, service=service)

    assert staleness(exchange, {1: [60, 160], 2: [60, 160]}) == [None, 0, 0]


def test_parameters_that_are_pulled_in_parts_are_as_old_as_the_oldest() -> None:
    exchange = Exchange()
    exchange.call(1, "weight", 0, returns="weight")
    exchange.push(2, 20)
    exchange.call(1, "bias", 40, returns="bias")
    exchange.push(1, 80)

    assert staleness(exchange, {1: [60]}) == [1]


def test_a_trainer_that_pulls_only_in_every_second_step_is_behind_by_its_own_update() -> None:
    exchange = Exchange()
    exchange.pull(1, 0)
    exchange.push(1, 20)
    exchange.push(2, 40)
    exchange.push(1, 60, step=1)

    assert staleness(exchange, {1: [15, 55]}) == [0, 2]


@pytest.mark.parametrize("returns", ["loss", None])
def test_a_call_that_does_not_return_the_parameters_is_no_pull(returns: str | None) -> None:
    exchange = Exchange()
    exchange.call(1, "evaluate", 0, returns=returns)
    exchange.push(1, 20)

    assert staleness(exchange, {1: [15]}) == [None]


def test_without_counts_the_staleness_is_unknown_and_not_zero() -> None:
    exchange = Exchange(counted=False)
    exchange.pull(1, 0)
    exchange.push(1, 20)

    (update,) = find_updates(exchange.joined(), {1: [15]})

    assert (update.staleness, update.unknown) == (None, "the server's recording does not count updates")


def test_a_server_that_applies_gradients_elsewhere_has_no_updates() -> None:
    exchange = Exchange()
    exchange.pull(1, 0)
    exchange.call(1, "push", 20)  # a thread of the server takes the step later

    assert find_updates(exchange.joined(), {1: [15]}) == []


def test_of_several_optimizers_the_one_with_most_parameters_decides() -> None:
    """GIVEN an update whose service also took the tenth step of a small optimizer."""
    exchange = Exchange()
    exchange.pull(1, 0)
    exchange.push(1, 20)
    exchange.services[-1].updates.append(RpcUpdate(optimizer=1, version=10))

    assert staleness(exchange, {1: [15]}) == [0]


def test_without_a_known_backward_pass_the_order_of_calls_decides() -> None:
    exchange = Exchange()
    exchange.pull(1, 0)
    exchange.push(2, 20)
    exchange.push(1, 40)

    assert staleness(exchange, {}) == [1]
