"""How a job is parallel: as its capture says, else as labels of torch and what a rank communicates show.

Experts by hand: their ranks exchange counts of tokens, then the tokens there and back in a forward pass. Data
parallelism by hand: gradients are all-reduced in a backward pass, and no label says that DDP or FSDP does that. A rank
that communicates nothing shows neither.
"""

from __future__ import annotations

import numpy as np

from tracekit.explain.ddp.micro_batches import gradient_reductions
from tracekit.explain.model_parallel.expert_exchanges import expert_all_to_alls
from tracekit.explain.model_parallel.tables import COUNT_DTYPES
from tracekit.model.communication import KINDS
from tracekit.rank.groups import strategies_of
from tracekit.rank.recorded_steps import RecordedSteps

_DATA_PARALLEL = {"ddp", "dp", "fsdp1", "fsdp2"}
_LEAST_BYTES = 1 << 16  # a step: smaller than the gradients of any model, larger than metrics


def recorded_strategies(recorded: RecordedSteps) -> tuple[tuple[str, ...], bool]:
    """Return the slugs of what one rank shows, and whether they are inferred."""
    found, inferred = strategies_of(recorded.trace)
    if not inferred:
        return found, False
    added = {"ep"} if _exchanges_counts_then_tokens(recorded) else set()
    if _DATA_PARALLEL.isdisjoint(found) and _all_reduces_gradients(recorded):
        added.add("manual_dp")
    return tuple(sorted({*found, *added})) if added else found, True


def _exchanges_counts_then_tokens(recorded: RecordedSteps) -> bool:
    communication, tokens = recorded.lanes.communication_events, recorded.once(expert_all_to_alls)
    which = np.flatnonzero(communication.kind == KINDS.index("all_to_all"))
    which = which[np.argsort(communication.launch_ns[which], kind="stable")]
    counts = np.isin(communication.dtype[which], COUNT_DTYPES)
    same_group = communication.group[which][1:] == communication.group[which][:-1]
    first = which[1:][counts[:-1] & ~counts[1:] & same_group]
    return bool(tokens.takes_back.any() and np.isin(tokens.which[~tokens.takes_back], first).any())


def _all_reduces_gradients(recorded: RecordedSteps) -> bool:
    communication, which = recorded.lanes.communication_events, recorded.once(gradient_reductions)
    which = which[communication.kind[which] == KINDS.index("all_reduce")]
    return int(communication.size_bytes[which].sum()) >= _LEAST_BYTES * max(len(recorded.steps), 1)
