"""How stale the parameters are that gradients are computed on, in updates of a parameter server.

An update is a call in whose service an optimizer took a step. An asynchronous function may keep its callers waiting
until a later call takes the step: then that step applies their gradients, too. A pull is a call that returned tensors
of the optimizer's shapes, and was waited for before the backward pass. No function is known by its name.

    trainer   |-pull-| forward | backward |-push-|         staleness of this gradient: 6 - 1 - 4 = 1 update
    server      v=4         v=5             v=6            (5 was another trainer's)
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracekit.model.metadata import RpcService, RpcUpdate
from tracekit.rpc.joined import JoinedCall, JoinedCalls

_ALL = 0.9  # of the optimizer's elements: calls that returned so many, together, are a pull
_MOST = 0.5  # so many are one if the calls before them belong to the gradient before

_NOT_COUNTED = "the server's recording does not count updates"
_NOT_PULLED = "no call before the backward pass is seen to return the parameters"

__all__ = ["NO_UPDATES", "ParameterUpdate", "find_updates"]

NO_UPDATES = "no call is seen to take an optimizer step where it is served"


@dataclass(frozen=True, kw_only=True)
class ParameterUpdate:
    """A gradient that a trainer brought to a server in a call.

    Attributes:
        step: of the trainer.
        version: the optimizer's version before the step that applied the gradient.
        pulled_version: that of the parameters that it was computed on; None if it is not known.
        uncertain: how many updates were applied while the pull was served: it may have read the parameters before
            them. None if it is not known.
        unknown: why the staleness is not known; None if it is.
    """

    rank: int
    step: int
    callee: str
    function: str
    pull: str | None = None
    version: int
    pulled_version: int | None = None
    uncertain: int | None = None
    unknown: str | None = None

    @property
    def staleness(self) -> int | None:
        return None if self.pulled_version is None else self.version - self.pulled_version


def find_updates(joined: JoinedCalls, backward_ns: Mapping[int, Sequence[int]]) -> list[ParameterUpdate]:
    """Return the updates that the ranks' calls in complete steps made. backward_ns: when each rank's backward passes
    began, ascending.
    """
    return [
        update
        for rank, calls in joined.calls.items()
        for callee in dict.fromkeys(item.call.callee for item in calls)
        for update in _to_server(
            rank, [item for item in calls if item.call.callee == callee], joined, backward_ns.get(rank, ())
        )
    ]


def _to_server(
    rank: int, calls: Sequence[JoinedCall], joined: JoinedCalls, backward_ns: Sequence[int]
) -> list[ParameterUpdate]:
    """Return the updates of one rank at one server. calls: all of the rank to it, in order of issue."""
    use = joined.uses[rank]
    waited_ns = {wait.number: wait.end_ns for wait in use.waits if wait.number is not None}
    server = joined.rank_of_worker.get(calls[0].call.callee)
    if server is None:
        return []
    shapes = {optimizer.number: optimizer.shapes for optimizer in joined.uses[server].optimizers}
    sizes = {number: sum(map(math.prod, of_optimizer)) for number, of_optimizer in shapes.items()}
    results = {result.key: result.shapes for result in joined.uses[server].results}
    updates = []
    for place, item in enumerate(calls):
        if item.step is None or item.service is None:
            continue
        applied = _applied(item.service, joined)
        if not applied:
            continue
        update = max(applied, key=lambda update: sizes.get(update.optimizer, 0))
        known = {
            "rank": rank,
            "step": item.step,
            "callee": item.call.callee,
            "function": item.call.function,
            "version": update.version - 1,
        }
        begun = bisect.bisect_right(backward_ns, item.call.issued_ns)
        before_ns = backward_ns[begun - 1] if begun else item.call.issued_ns
        earlier = [
            other
            for other in calls[:place]
            if other.service is not None and (_available_ns(other, waited_ns) or before_ns + 1) <= before_ns
        ]
        pull = _pull(earlier, joined, shapes.get(update.optimizer, []), results)
        if pull is None:
            updates.append(ParameterUpdate(**known, unknown=_NOT_PULLED))  # type: ignore[arg-type]
            continue
        assert pull.service is not None
        versions = pull.service.versions
        updates.append(
            ParameterUpdate(
                **known,  # type: ignore[arg-type]
                pull=pull.call.function,
                pulled_version=None if versions is None else _at(versions, update.optimizer),
                uncertain=pull.service.updates_meanwhile,
                unknown=_NOT_COUNTED if versions is None else None,
            )
        )
    return updates


def _available_ns(item: JoinedCall, waited_ns: Mapping[int, int]) -> int | None:
    """Return when the caller had the result; None if that was not seen."""
    return waited_ns.get(item.call.number, item.call.done_ns)


def _applied(service: RpcService, joined: JoinedCalls) -> Sequence[RpcUpdate]:
    """Return the optimizer steps that applied what a call brought: its own, or those of the call that released it."""
    if service.updates or service.released_by is None:
        return service.updates
    releasing = joined.services.get((service.released_by.caller, service.released_by.number))
    return () if releasing is None else releasing.updates


def _at(versions: Sequence[int], optimizer: int) -> int:
    """Return the version of an optimizer; it has none before its first step."""
    return versions[optimizer] if optimizer < len(versions) else 0


def _pull(
    earlier: Sequence[JoinedCall],
    joined: JoinedCalls,
    shapes: Sequence[Sequence[int]],
    results: Mapping[str, Sequence[Sequence[int]]],
) -> JoinedCall | None:
    """Return the earliest of the last calls that together returned the parameters; None if no calls did.

    An update may return parameters, too; what was returned before it was for another gradient.
    """
    missing = Counter(map(tuple, shapes))
    whole = sum(math.prod(shape) for shape in shapes)
    found, first = 0, None
    for item in reversed(earlier):
        assert item.service is not None
        returned = Counter(map(tuple, results.get(item.service.result or "", ())))
        here = missing & returned
        if here:
            missing -= here
            found += sum(math.prod(shape) * count for shape, count in here.items())
            first = item
        if found >= _ALL * whole or (found >= _MOST * whole and _applied(item.service, joined)):
            return first if whole else None
    return first if whole and found >= _MOST * whole else None
