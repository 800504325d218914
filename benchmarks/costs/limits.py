"""How close reading one rank comes to its lower bound, which is inflating its text.

Measured is the throughput, in MB of JSON a CPU second, of inflating alone (zlib, isal), of each decoder on plain text
and of each decoder on packed text. The last one is also stated as a multiple of the time for inflating. Each is timed
in a fresh process, after its imports.
"""

from __future__ import annotations

import gzip
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.costs.whole_run import unpacked_bytes
from benchmarks.measuring.machine import native_is_built
from benchmarks.measuring.measure import Command, log_cost, measure, round_order
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.samples import ratios
from benchmarks.measuring.tools import BIG, SMALL, Setup

NAME = "limits"
WHOLE = "packed text to columns, {} decoder"

# Reads as tracekit does: the file in pieces, of which at most 64 KiB of text are unpacked at a time.
_INFLATE = """
import importlib, sys, time
inflater = importlib.import_module(sys.argv[2]).decompressobj(wbits=31)
begin_s = time.process_time()
with open(sys.argv[1], "rb") as file:
    while packed := file.read(1 << 17):
        while packed:
            inflater.decompress(packed, 1 << 16)
            packed = inflater.unconsumed_tail
print(time.process_time() - begin_s)
"""

_DECODE = """
import sys, time
from pathlib import Path
from tracekit.read.decode.decoder import decode
begin_s = time.process_time()
decode(Path(sys.argv[1]))
print(time.process_time() - begin_s)
"""


def rows(setup: Setup) -> list[Row]:
    packed = setup.run(8, SMALL if setup.quick else BIG) / "rank0.json.gz"
    with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder:
        plain = Path(folder) / "rank0.json"
        with gzip.open(packed) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        commands, missing = _commands(packed, plain)
        spent: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(setup.runs):
            for name in round_order(commands, number):
                cost = log_cost(f"run {number + 1}: {name}", measure(commands[name]))
                spent[name].append(float(cost.output))
    size_mb = unpacked_bytes(packed) / 1e6
    found = [row(NAME, name, "MB/CPU s", [size_mb / each for each in values]) for name, values in spent.items()]
    return [*found, *_against_inflate(spent), *missing]


def _commands(packed: Path, plain: Path) -> tuple[dict[str, Command], list[Row]]:
    """Return the commands that can be measured here, and a row with the reason for each that cannot."""
    commands, missing = {}, []
    for module, package in (("zlib", "zlib"), ("isal.isal_zlib", "isal")):
        name = f"inflate, {package}"
        if importlib.util.find_spec(package) is not None:
            commands[name] = Command(arguments=(sys.executable, "-c", _INFLATE, str(packed), module))
        else:
            missing.append(Row(benchmark=NAME, what=name, unit="MB/CPU s", reason=f"{package} is not installed"))
    for decoder in ("native", "portable"):
        names = {f"plain text to columns, {decoder} decoder": plain, WHOLE.format(decoder): packed}
        if decoder == "portable" or native_is_built():
            for name, path in names.items():
                arguments = (sys.executable, "-c", _DECODE, str(path))
                commands[name] = Command(
                    arguments=arguments, environment={"TRACEKIT_NATIVE": str(int(decoder == "native"))}
                )
        else:
            reason = "the native decoder is not built here"
            missing += [Row(benchmark=NAME, what=name, unit="MB/CPU s", reason=reason) for name in names]
    return commands, missing


def _against_inflate(spent: dict[str, list[float]]) -> Iterator[Row]:
    inflate = next(spent[name] for name in ("inflate, isal", "inflate, zlib") if name in spent)
    for decoder in ("native", "portable"):
        name = WHOLE.format(decoder)
        if name in spent:
            yield row(NAME, f"{name} / inflate alone", "x", ratios(spent[name], inflate))
