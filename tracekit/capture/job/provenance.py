"""Fills in the part of a trace's metadata that says where it comes from: versions, process, rank."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import tracekit
from tracekit.capture.job.process import Identity
from tracekit.model.metadata import METADATA_VERSION, CaptureMetadata

__all__ = ["metadata_of"]


def metadata_of(run_id: str, identity: Identity, **recorded: Any) -> CaptureMetadata:
    """Return the metadata of a trace of this process; `recorded` are the fields about its content."""
    return CaptureMetadata(
        version=METADATA_VERSION,
        tracekit=tracekit.__version__,
        torch=str(sys.modules["torch"].__version__),
        python=platform.python_version(),
        run_id=run_id,
        attempt=identity.attempt,
        rank=identity.rank,
        local_rank=identity.local_rank,
        world_size=identity.world_size,
        pid=os.getpid(),
        host=identity.host,
        host_id=identity.host_id,
        **recorded,
    )
