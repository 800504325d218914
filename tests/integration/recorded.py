"""Reading back what launched processes recorded."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

Launch = Callable[..., subprocess.CompletedProcess[str]]


def read_traces(folder: Path) -> list[dict[str, Any]]:
    """The traces below `folder`, in order of rank."""
    found = [json.loads(gzip.decompress(file.read_bytes())) for file in folder.rglob("rank-*.json.gz")]
    return sorted(found, key=lambda trace: trace["tracekit"]["rank"])
