"""Where this repository, its small traces and its probes are, for tests in any folder."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
PROBES = ROOT / "probes"
PROBE_PARTS = {"attention", "blocks", "job", "sleeping"}
"""The modules of `PROBES` that the probes share."""
