"""Runs a script as Python does, and writes FOLDER/threads-<rank>.json: the threads that are left when its program ends.

threads_at_exit.py FOLDER SCRIPT [ARGUMENT...]
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import sys
from pathlib import Path


def write_threads(folder: Path) -> None:
    names = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            names.append((thread / "comm").read_text().strip())
    (folder / f"threads-{os.environ['RANK']}.json").write_text(json.dumps(names))


if __name__ == "__main__":
    _, out, *sys.argv = sys.argv
    sys.path[0] = str(Path(sys.argv[0]).parent)
    atexit.register(write_threads, Path(out))  # called last, as it is the first to be registered
    runpy.run_path(sys.argv[0], run_name="__main__")
