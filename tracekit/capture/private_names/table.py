"""Lists every private name of torch that tracekit reads, calls, patches or recognises.

torch may rename or remove these without notice. `tests/unit/capture/private_names/test_table.py` fails if the code uses
one that is not listed, or if the installed torch lacks one. `tracekit doctor` shows what is lost without it.
"""

from __future__ import annotations

from tracekit.capture.private_names.distributed import DDP, FSDP, GROUPS
from tracekit.capture.private_names.entry import PrivateName
from tracekit.capture.private_names.one_process import COMPILER, MODULES, PHASES, PROFILER
from tracekit.capture.private_names.pipelines_and_rpc import PIPELINES, RPC

__all__ = ["PRIVATE_NAMES"]

PRIVATE_NAMES: tuple[PrivateName, ...] = (
    *(*PROFILER, *COMPILER, *MODULES, *PHASES),
    *(*GROUPS, *DDP, *FSDP, *PIPELINES, *RPC),
)
