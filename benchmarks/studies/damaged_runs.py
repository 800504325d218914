"""What the analysis of eight good ranks beside one damaged file costs, class by class of damage.

    python -m benchmarks.studies.damaged_runs [--classes NAME ...] [--json FILE]

The classes are those of `tests/damaged_runs`, whose tests say what the answers must be. Each folder is analysed by the
command line with an empty cache, once to a page and once to JSON. Limits are 30 s, 1 GB and 64 MB of output. The exit
code is 1 where one is exceeded, or where a file outside of the output and the cache was created or changed.
"""

from __future__ import annotations

import argparse
import json
import stat
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measuring.measure import Command, log_cost, measure
from benchmarks.studies.documents import markdown
from tests.damaged_runs.classes import CLASSES
from tests.damaged_runs.good_run import BAD, write_good_run

_OUTPUTS = ("report.html", "report.json")
_MOST_S = 30.0
_MOST_PEAK_BYTES = 1_000_000_000
_MOST_OUTPUT_BYTES = 64_000_000


@dataclass(frozen=True, kw_only=True)
class ClassCost:
    """The most that any output of a class took.

    Attributes:
        peak_bytes: memory of the largest process.
        output_bytes: the file and what was printed.
        changed: files that are neither output nor cache and were created, changed or removed.
    """

    name: str
    wall_s: float
    cpu_s: float
    peak_bytes: int
    output_bytes: int
    changed: tuple[str, ...]


def cost_of(name: str, work: Path) -> ClassCost:
    """Write the run of a class in the empty folder `work`, analyse it, and return what that cost."""
    run, home = write_good_run(work / "run"), work / "home"
    CLASSES[name].write(run / f"rank{BAD}.json")
    home.mkdir()
    before = _files(work)
    costs, sizes_bytes = [], []
    for output in _OUTPUTS:
        command = [sys.executable, "-m", "tracekit", "analyze", str(run), "-o", str(work / output)]
        # Settings and caches of the user are not this study's.
        environment = {"HOME": str(home), "XDG_CACHE_HOME": str(work / "cache"), "TRACEKIT_CONFIG": "0"}
        cost = log_cost(f"{name}, {output}", measure(Command(arguments=command, environment=environment)))
        costs.append(cost)
        sizes_bytes.append((work / output).stat().st_size + len(cost.output.encode()))
    after = {
        path: file for path, file in _files(work).items() if path not in _OUTPUTS and not path.startswith("cache/")
    }
    return ClassCost(
        name=name,
        wall_s=max(cost.wall_s for cost in costs),
        cpu_s=max(cost.cpu_s for cost in costs),
        peak_bytes=max(cost.peak_bytes for cost in costs),
        output_bytes=max(sizes_bytes),
        changed=tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))),
    )


def over_limits(cost: ClassCost) -> list[str]:
    """Return what is wrong with a cost, in words."""
    return [
        text
        for text, is_wrong in (
            (f"{cost.wall_s:.1f} s", cost.wall_s > _MOST_S),
            (f"{cost.peak_bytes / 1e6:.0f} MB of memory", cost.peak_bytes > _MOST_PEAK_BYTES),
            (f"{cost.output_bytes / 1e6:.1f} MB of output", cost.output_bytes > _MOST_OUTPUT_BYTES),
            (f"changed: {', '.join(cost.changed)}", bool(cost.changed)),
        )
        if is_wrong
    ]


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of the last change of each file below `folder` but for outputs and cache; 0 of a folder."""
    found = {}
    for path in folder.rglob("*"):
        place, status = path.relative_to(folder), path.lstat()
        if place.parts[0] not in (*_OUTPUTS, "cache"):
            is_folder = stat.S_ISDIR(status.st_mode)
            found[str(place)] = (0, 0) if is_folder else (status.st_size, status.st_mtime_ns)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", nargs="+", default=sorted(CLASSES), choices=sorted(CLASSES), metavar="NAME")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    costs = []
    for name in chosen.classes:
        with tempfile.TemporaryDirectory() as work:
            costs.append(cost_of(name, Path(work)))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1))
    costliest = sorted(costs, key=lambda cost: -cost.wall_s)[:10]
    heading = ("class", "s", "CPU s", "memory, MB", "output, MB")
    rows = [
        (c.name, f"{c.wall_s:.1f}", f"{c.cpu_s:.1f}", f"{c.peak_bytes / 1e6:.0f}", f"{c.output_bytes / 1e6:.2f}")
        for c in costliest
    ]
    print(f"{len(costs)} classes; those that took longest:\n\n{markdown([heading, *rows])}")
    print(f"\nmost memory {max(c.peak_bytes for c in costs) / 1e6:.0f} MB, ", end="")
    print(f"most output {max(c.output_bytes for c in costs) / 1e6:.1f} MB")
    wrong = {cost.name: over_limits(cost) for cost in costs}
    for name, texts in wrong.items():
        for text in texts:
            print(f"{name}: {text}")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
