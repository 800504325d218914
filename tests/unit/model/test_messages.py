"""When a rank reached a message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracekit.model.events import ABSENT
from tracekit.model.messages import Messages


def test_a_message_is_reached_as_its_event_begins_or_else_as_it_is_issued() -> None:
    """GIVEN messages issued at 10, 20 and 30, the second without an event THEN 15, 20 and 37."""
    issue_ns, start_ns = np.array([10, 20, 30]), np.array([15, ABSENT, 37])
    messages = replace(Messages.empty(), issue_ns=issue_ns, start_ns=start_ns)

    assert messages.ready_ns.tolist() == [15, 20, 37]
    assert Messages.empty().ready_ns.tolist() == []
