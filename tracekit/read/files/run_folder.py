"""Whether a file is one that the probe wrote into the folder of a run."""

from __future__ import annotations

import re
from pathlib import Path

from tracekit.model.metadata import MANIFEST_SUFFIX

__all__ = ["RUN_FOLDER", "is_of_probe"]

RUN_FOLDER = r"/(?P<run_id>[A-Za-z0-9_-]{1,64})/attempt-(?P<attempt>\d{1,9})/step-(?P<step>\d{9})(/rank-\d+xxx)?/"
"""The end of the path of a folder of traces, with the slashes around it."""

_FILE = re.compile(RUN_FOLDER + r"[^/]+$")


def is_of_probe(file: Path) -> bool:
    """Return whether a file has a path that the probe gives to traces, and the probe's manifest beside it."""
    if _FILE.search(file.absolute().as_posix()) is None:
        return False
    return file.with_name(file.name.partition(".")[0] + MANIFEST_SUFFIX).is_file()
