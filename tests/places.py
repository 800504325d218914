"""Where this repository, its small traces and its probes are, for tests in any folder."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
PROBES = ROOT / "probes"
PROBE_PARTS = {"attention", "blocks", "job", "sleeping"}
"""The modules of `PROBES` that the probes share."""


def field_cases() -> Path | None:
    """Return the folder of traces that users sent: TRACEKIT_FIELD_CASES, or that beside the public traces."""
    if named := os.environ.get("TRACEKIT_FIELD_CASES"):
        return Path(named)
    real = os.environ.get("TRACEKIT_REAL_TRACES")
    return Path(real).resolve().parent / "field_cases" if real else None
