"""Objects of the training program, found without configuration: one pass over what the garbage collector tracks."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

__all__ = ["live_instances"]


def live_instances(*kinds: type) -> dict[type, list[Any]]:
    """All live instances of each of `kinds`, subclasses included, oldest first.

    Asks for `type(x)`, never for `x.__class__`: proxies and lazy modules do work when they are asked for that. What
    `gc.freeze()` has hidden is not found; `tracekit.probe(watch=...)` names it.
    """
    found: dict[type, list[Any]] = {kind: [] for kind in kinds}
    wanted: dict[type, Sequence[type]] = {}
    for candidate in gc.get_objects():
        kind = type(candidate)
        matches = wanted.get(kind)
        if matches is None:
            matches = wanted[kind] = [base for base in kinds if base in kind.__mro__]
        for base in matches:
            found[base].append(candidate)
    return found
