"""Traces of many writers, and the arguments of their events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.places import DATA

COUNTERS = {"Ev Idx", "Record function id", "Python id", "Python parent id"}  # the profiler's, left out
WRITERS = ("ddp", "dlrm_8xV100", "a100_ddp", "b200_tp8", "mi300x_resnet", "gloo_rank34")


def traces_of(writer: str, real_traces: Path) -> Path:
    """Return a run, or one rank of a run."""
    if writer == "ddp":
        return DATA / "ddp_slow_rank"
    (found,) = [*real_traces.glob(f"{writer}*/"), *real_traces.glob(f"single_rank/{writer}*")]
    return found


def arguments(events: Iterable[dict[str, Any]]) -> Counter[tuple[str, str, str, str]]:
    """Count the arguments of events as (category, name, key, JSON of the value)."""
    return Counter(
        (event["cat"], event["name"], key, json.dumps(value))
        for event in events
        for key, value in event.get("args", {}).items()
        if key not in COUNTERS
    )
