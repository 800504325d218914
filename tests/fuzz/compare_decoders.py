"""Decode mutated traces with both decoders. Prints how they differ, and exits with 1 if they do.

    python -m tests.fuzz.compare_decoders --mutants 2000 TRACE...

A separate program, so that it can run with an extension that was built with sanitizers.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import tempfile
from pathlib import Path

from tests.fuzz.mutations import excerpt, mutants, read_text
from tests.unit.read.decode.decoders import differences, native_decoder, outcome
from tracekit.read.decode import portable

MUTANTS_PER_EXCERPT = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--mutants", type=int, default=200, help="of each trace")
    parser.add_argument("--events", type=int, default=12, help="of each excerpt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--extension", type=Path, help="use this build of the scanner")
    options = parser.parse_args()
    if options.extension is not None:
        load_scanner(options.extension)
    native = native_decoder()
    rng = random.Random(options.seed)
    understood = total = 0
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.json"
        for trace in options.traces:
            text = read_text(trace)
            excerpts = [excerpt(text, options.events, rng) for _ in range(options.mutants // MUTANTS_PER_EXCERPT)]
            corpus = (mutant for each in excerpts for mutant in mutants(each, MUTANTS_PER_EXCERPT, rng))
            for number, mutant in enumerate(corpus):
                path.write_bytes(mutant)
                total += 1
                actual = outcome(native.decode, path, extra_args=True)
                expected = outcome(portable.decode, path, extra_args=True)
                if actual is None:  # left to the portable decoder
                    continue
                understood += 1
                if different := differences(actual, expected):
                    copy = Path(tempfile.gettempdir()) / f"decoders-differ-{trace.name}-{number}.json"
                    copy.write_bytes(mutant)
                    failures.append(f"{copy}: {', '.join(different)}")
    print(f"{total} traces, {understood} of them understood by the native decoder, {len(failures)} with differences")
    print("\n".join(failures[:20]))
    return 1 if failures else 0


def load_scanner(path: Path) -> None:
    """Let the native decoder use the extension at `path`."""
    name = "tracekit.read.decode.native._scanner"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


if __name__ == "__main__":
    sys.exit(main())
