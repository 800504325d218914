"""What torch before 2.12 cannot do over Gloo, without the probe, too: tests leave it out (docs/capture.md)."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = tuple(int(part) for part in version("torch").split(".")[:2])
except PackageNotFoundError:  # then nothing is recorded
    VERSION = (0, 0)
_IS_OLD = VERSION < (2, 12)

GLOO_RUNS_SCHEDULES = VERSION >= (2, 7)
"""Of pipelines. Before, all but GPipe hang."""

FSDP2_ON_CPUS = VERSION >= (2, 7)

GLOO_SCATTERS_LISTS = VERSION >= (2, 7)
"""`reduce_scatter`; with `reduce_scatter_tensor` all do."""

GLOO_EXCHANGES_LISTS = not _IS_OLD
"""`all_to_all`; with `all_to_all_single` all do."""

GLOO_NAMES_THREADS = not _IS_OLD
"""By what group they work for."""

MOST_OVERLAP = 0.02 if VERSION > (2, 8) else 0.15
"""Of collectives that block. In old versions the next operator begins as they end."""

SEVERAL_STAGES_HAVE_SPANS = VERSION > (2, 8)
"""Those of torch, where a rank has several stages of a pipeline."""

PIPELINES_EVALUATE = VERSION > (2, 8)
"""`Schedule.eval`."""

SAVES_WITHOUT_GROUP = VERSION > (2, 8)
"""Distributed checkpoints, in the background."""

PROFILER_SURVIVES_ERRORS = not _IS_OLD
"""An error as it is prepared, started or stopped leaves it usable."""

V_SCHEDULES = {} if _IS_OLD else {"zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}
"""Of old versions they send to themselves, which Gloo cannot."""
