"""What every benchmark is given: inputs, commands of the tools, and how often to run them.

Comes in: the options of `python -m benchmarks`. Goes out: a `Setup`, whose inputs are made when they are first asked
for and stay in its folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import big_runs
from benchmarks.measure import Command

__all__ = ["BIG", "SMALL", "Setup"]

BIG, SMALL = 27, 4
"""Repeats of the seed that give a rank 269 MB of JSON, and 40 MB."""

# HTA's two questions that tracekit's sections answer. It draws by default, which would be measured too.
_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis

if __name__ == "__main__":
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    print(analysis.get_comm_comp_overlap(visualize=False))
    print(analysis.get_temporal_breakdown(visualize=False))
"""

# The table whose `collective_id` says which collectives of different ranks are one.
_TRACELENS = """
import sys
from TraceLens import NcclAnalyser

if __name__ == "__main__":
    print(NcclAnalyser(sys.argv[1:], len(sys.argv) - 1).build_df_long().collective_id.nunique())
"""


_FUSION = """
import sys
from TraceLens import TraceFuse

if __name__ == "__main__":
    TraceFuse(sys.argv[2:]).merge_and_save(sys.argv[1])
"""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """`runs`: rounds of each comparison. `quick`: small inputs. `growth_repeats`: 10 MB each of growth's ranks.

    `hta_python`: an interpreter that has HTA, `tracelens`: a checkout of TraceLens; None where there is none.
    """

    runs: int
    quick: bool
    seed: Path
    inputs: Path
    growth_repeats: int
    hta_python: str | None
    tracelens: Path | None
    tracelens_python: str

    def run(self, ranks: int, repeats: int) -> Path:
        """A folder with that many ranks, each of `repeats` times 10 MB of JSON, packed with gzip."""
        # Made by other code or of another seed, it is another input.
        made_of = zlib.crc32(Path(big_runs.__file__).read_bytes(), zlib.crc32(self.seed.read_bytes()))
        folder = self.inputs / f"{ranks}-ranks-x{repeats}-{made_of:08x}"
        if not folder.is_dir():
            print(f"making {folder}", file=sys.stderr, flush=True)
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            # In a process of its own: memory that this one held would be counted to those that it starts.
            command = [sys.executable, "-m", "benchmarks.big_runs", str(unfinished), "--seed", str(self.seed)]
            command += ["--ranks", str(ranks), "--repeats", str(repeats)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            unfinished.rename(folder)
        return folder

    @contextmanager
    def first_ranks(self, run: Path, count: int) -> Iterator[Path]:
        """A folder with the first ranks of a run alone, for tools that take all that is in a folder."""
        with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder:
            for rank in range(count):
                name = f"rank{rank}.json.gz"
                (Path(folder) / name).symlink_to((run / name).resolve())
            yield Path(folder)

    def hta(self, run: Path) -> Command | None:
        if self.hta_python is None:
            return None
        return Command(arguments=(self.hta_python, "-c", _HTA, str(run)))

    def match_with_tracelens(self, run: Path) -> Command | None:
        if self.tracelens is None:
            return None
        paths = sorted(str(path) for path in run.iterdir())
        arguments = (self.tracelens_python, "-c", _TRACELENS, *paths)
        return Command(arguments=arguments, environment={"PYTHONPATH": str(self.tracelens)})

    def fuse_with_tracelens(self, run: Path, output: Path) -> Command | None:
        if self.tracelens is None:
            return None
        paths = sorted(str(path) for path in run.iterdir())
        arguments = (self.tracelens_python, "-c", _FUSION, str(output), *paths)
        return Command(arguments=arguments, environment={"PYTHONPATH": str(self.tracelens)}, writes=output)

    def merge(self, run: Path, output: Path, *options: str) -> Command:
        """`tracekit merge`, without a cache."""
        arguments = (sys.executable, "-m", "tracekit", "merge", str(run), "-o", str(output), "--no-cache")
        return Command(arguments=(*arguments, *options), writes=output)

    def analyze(self, run: Path, *options: str, decoder: str | None = None, cache: Path | None = None) -> Command:
        """`tracekit analyze`, without a cache unless one is given."""
        kept = ("--no-cache",) if cache is None else ("--cache-dir", str(cache))
        return Command(
            arguments=(sys.executable, "-m", "tracekit", "analyze", str(run), *options, *kept),
            environment={} if decoder is None else {"TRACEKIT_NATIVE": str(int(decoder == "native"))},
        )
