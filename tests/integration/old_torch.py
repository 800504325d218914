"""What torch before 2.12 cannot do over Gloo, without the probe, too: tests leave it out (docs/capture.md)."""

from __future__ import annotations

from importlib.metadata import version

_IS_OLD = tuple(int(part) for part in version("torch").split(".")[:2]) < (2, 12)

GLOO_EXCHANGES_LISTS = not _IS_OLD
"""`all_to_all`; with `all_to_all_single` all do."""

V_SCHEDULES = {} if _IS_OLD else {"zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}
"""Of old versions they send to themselves, which Gloo cannot."""
