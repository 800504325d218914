"""The loop of all fuzzers: inputs that follow from a number, until the time is over, and what was found."""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.places import ROOT

_MOST_FINDINGS = 20
_MOST_PEAK_BYTES = 1_000_000_000


class Finding(Exception):  # noqa: N818 - not an error of the fuzzer
    """An input for which a promise does not hold."""


def parser(description: str | None) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=1.0, help="of wall clock")
    options.add_argument("--count", type=int, help="so many inputs, instead of --minutes")
    options.add_argument("--seed", type=int, default=0, help="inputs of another seed are other ones")
    options.add_argument("--first", type=int, default=0, help="begin with this input; with --count 1: only this one")
    options.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz", help="where inputs are kept")
    return options


def fuzz(name: str, check: Callable[[random.Random, Path], str], options: argparse.Namespace) -> int:
    """Call `check` with inputs until the time is over, and print what came out. Return 1 if anything was found.

    `check` gets a source of chance and a folder, which is kept if it raises or the process dies. It returns a word for
    what happened, which is counted.
    """
    folder: Path = options.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    started_s, outcomes, findings = time.monotonic(), Counter[str](), []
    number = options.first
    slowest_s = 0.0
    while len(findings) < _MOST_FINDINGS:
        if options.count is not None:
            if number == options.first + options.count:
                break
        elif time.monotonic() - started_s > 60 * options.minutes:
            break
        here = folder / str(number)
        here.mkdir(parents=True)
        begun_s = time.monotonic()
        peak_bytes = _peak_bytes()
        try:
            outcomes[check(random.Random(f"{options.seed} {number}"), here)] += 1
            if peak_bytes < _MOST_PEAK_BYTES <= _peak_bytes():
                raise Finding(f"{_peak_bytes() / 1e6:.0f} MB of memory, {peak_bytes / 1e6:.0f} before")
        except Exception:
            lines = traceback.format_exc(limit=-6)
            findings.append(f"{here}: --seed {options.seed} --first {number} --count 1\n{lines}")
        else:
            shutil.rmtree(here)
        slowest_s = max(slowest_s, time.monotonic() - begun_s)
        number += 1
    cpu = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"{name}: {number - options.first} inputs in {(cpu.ru_utime + cpu.ru_stime) / 60:.1f} CPU minutes, "
        f"the slowest in {slowest_s:.1f} s, at most {_peak_bytes() / 1e6:.0f} MB: "
        f"{', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items()))}; {len(findings)} findings"
    )
    print("\n".join(findings))
    return 1 if findings else 0


def _peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
