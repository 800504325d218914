"""Whether a file lies where the probe writes the traces of a run."""

from __future__ import annotations

import re

from tracekit.read.files.storage import TracePath

__all__ = ["RUN_FOLDER", "is_in_run_folder"]

RUN_FOLDER = r"/(?P<run_id>[A-Za-z0-9_-]{1,64})/attempt-(?P<attempt>\d{1,9})/step-(?P<step>\d{9})(/rank-\d+xxx)?/"
"""The end of the path of a folder of traces, with the slashes around it."""

_FILE = re.compile(RUN_FOLDER + r"[^/]+$")


def is_in_run_folder(file: TracePath) -> bool:
    """Return whether the path of a file is one that the probe gives to traces."""
    return _FILE.search(file.absolute().as_posix()) is not None
