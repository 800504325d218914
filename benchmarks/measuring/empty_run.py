"""A run with almost no events: analysing it costs what every analysis costs before the first event.

This cost is taken off before growth is computed. `tracekit --version` would not do: it imports neither numpy nor an
analysis. Both would remain in the cost of the smallest size, and growth would look better than it is.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STEPS = 3


@contextmanager
def nearly_empty_run(ranks: int = 1) -> Iterator[Path]:
    """Yield a folder of ranks with three steps of one kernel each, launched by the host."""
    with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder:
        for rank in range(ranks):
            (Path(folder) / f"rank{rank}.json").write_text(json.dumps(_trace(rank, ranks)))
        yield Path(folder)


def _trace(rank: int, ranks: int) -> dict[str, object]:
    events: list[dict[str, object]] = []
    for step in range(_STEPS):
        start = 1000.0 * step
        launch, kernel = {"correlation": step + 1}, {"correlation": step + 1, "stream": 7, "device": 0}
        on_host, on_device = {"ph": "X", "pid": 1, "tid": 1}, {"ph": "X", "pid": 0, "tid": 7}
        events += [
            on_host | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": start, "dur": 900.0},
            on_host | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 10, "dur": 5, "args": launch},
            on_device | {"cat": "kernel", "name": "gemm", "ts": start + 50, "dur": 500.0, "args": kernel},
        ]
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "traceEvents": events,
    }
