"""How much one rank gives and gets in each all-to-all of tokens for experts."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.events.communication_rules import bytes_per_element
from tracekit.analysis.model_parallel.per_rank.expert_exchanges import expert_all_to_alls
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.whatif.tables import Exchanges
from tracekit.model.communication import DTYPES
from tracekit.model.events import ABSENT

__all__ = ["exchanges"]

_BYTES = np.array([bytes_per_element(name) or 0 for name in DTYPES], dtype=np.int64)


def exchanges(recorded: RecordedSteps) -> Exchanges:
    """Return the all-to-alls of one recording that bring tokens to experts or take them back, if their sizes are known.

    Other all-to-alls, as of embedding tables, may be uneven as well. No router decides how much they bring.
    """
    found = recorded.once(expert_all_to_alls)
    communication = recorded.lanes.communication_events
    width = _BYTES[communication.dtype[found.which]]
    known = (found.sent != ABSENT) & (width > 0)
    return Exchanges(
        launch_ns=communication.launch_ns[found.which][known],
        sent_bytes=(found.sent * width)[known],
        received_bytes=(found.received * width)[known],
    )
