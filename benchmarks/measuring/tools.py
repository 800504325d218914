"""What every benchmark uses: inputs, commands of the tools, and the number of rounds.

Inputs are made at their first use and stay in the folder `--inputs`.
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

from benchmarks.measuring import big_runs
from benchmarks.measuring.measure import Command

BIG, SMALL = 27, 4
"""Repeats of the seed that give a rank 269 MB of JSON, and 40 MB."""

# The two analyses of HTA that tracekit has, too. Drawing, HTA's default, would be measured as well.
_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis

if __name__ == "__main__":
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    print(analysis.get_comm_comp_overlap(visualize=False))
    print(analysis.get_temporal_breakdown(visualize=False))
"""

# The table in which the calls of one collective on all ranks share a `collective_id`.
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
    """The options of `python -m benchmarks`.

    Attributes:
        runs: rounds of each comparison.
        quick: use small inputs.
        seed: the trace that inputs are made of.
        inputs: the folder of the inputs.
        growth_repeats: how often a rank of `growth` repeats the seed's 10 MB.
        hta_python: an interpreter that has HTA; None where there is none.
        tracelens: a checkout of TraceLens; None where there is none.
        tracelens_python: an interpreter that has what TraceLens imports.
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
        """Return a folder with that many ranks, each of `repeats` times 10 MB of JSON, packed with gzip."""
        # A change of the code or of the seed makes new inputs.
        made_of = zlib.crc32(Path(big_runs.__file__).read_bytes(), zlib.crc32(self.seed.read_bytes()))
        folder = self.inputs / f"{ranks}-ranks-x{repeats}-{made_of:08x}"
        if not folder.is_dir():
            print(f"making {folder}", file=sys.stderr, flush=True)
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            # In another process, as memory of this one would count in the figures of those that it starts.
            command = [sys.executable, "-m", "benchmarks.measuring.big_runs", str(unfinished), "--seed", str(self.seed)]
            command += ["--ranks", str(ranks), "--repeats", str(repeats)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            unfinished.rename(folder)
        return folder

    @contextmanager
    def first_ranks(self, run: Path, count: int) -> Iterator[Path]:
        """Yield a folder with only the first ranks of a run, for tools that read a whole folder."""
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
        """Return the command `tracekit merge`, without a cache."""
        arguments = (sys.executable, "-m", "tracekit", "merge", str(run), "-o", str(output), "--no-cache")
        return Command(arguments=(*arguments, *options), writes=output)

    def analyze(self, run: Path, *options: str, decoder: str | None = None, cache: Path | None = None) -> Command:
        """Return the command `tracekit analyze`, without a cache unless one is given."""
        kept = ("--no-cache",) if cache is None else ("--cache-dir", str(cache))
        return Command(
            arguments=(sys.executable, "-m", "tracekit", "analyze", str(run), *options, *kept),
            environment={} if decoder is None else {"TRACEKIT_NATIVE": str(int(decoder == "native"))},
        )
