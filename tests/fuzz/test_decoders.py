"""Mutated traces: both decoders agree about them, and the scanner touches no memory of others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.components import require
from tests.unit.read.decode.decoders import native_decoder

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "tracekit" / "read" / "decode" / "native"
SANITIZED = ["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra"]

native_decoder()


@pytest.fixture(scope="module")
def corpus(real_traces: Path) -> list[Path]:
    """Real traces of different writers, devices and years."""
    names = ["dlrm_8xV100/worker0*", "two_of_128/rank-0*", "single_rank/*", "gloo_rank34_of_300/*"]
    return [
        path for name in names for path in sorted(real_traces.glob(name)) if path.name.endswith(("json", "json.gz"))
    ] + sorted((ROOT / "tests" / "data").rglob("rank-000000.json.gz"))


def compare(arguments: list[str], **environment: str) -> str:
    command = [sys.executable, "-m", "tests.fuzz.compare_decoders", *arguments]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = os.environ | {"PYTHONPATH": path} | environment
    result = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr[-5000:]
    return result.stdout


@pytest.mark.parametrize("mutants", [50, pytest.param(600, marks=pytest.mark.long)])
def test_the_decoders_agree_on_mutated_traces(corpus: list[Path], mutants: int) -> None:
    """GIVEN real traces, mutated at random WHEN the native decoder reads one THEN the portable one reads the same."""
    assert len(corpus) >= 6
    output = compare(["--mutants", str(mutants), *map(str, corpus)])
    understood = int(output.split(" traces, ")[1].split()[0])
    assert understood > mutants // 12 * len(corpus)  # enough of them to compare


@pytest.mark.long
def test_no_mutation_makes_the_scanner_touch_other_memory(corpus: list[Path], tmp_path: Path) -> None:
    """GIVEN the scanner built with sanitizers WHEN it reads mutated traces THEN no sanitizer reports anything."""
    compiler = shutil.which("g++")
    require("a C++ compiler", compiler, "g++ builds the scanner with AddressSanitizer")
    assert compiler is not None
    extension = tmp_path / "_scanner.so"
    sources = [str(source) for source in sorted(NATIVE.glob("*.cpp"))]
    include = f"-I{sysconfig.get_paths()['include']}"
    build = [compiler, *SANITIZED, "-shared", "-fPIC", include, *sources, "-o", str(extension)]
    subprocess.run(build, check=True, timeout=300)
    runtimes = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")  # libstdc++ too, or exceptions are not caught
    ]
    arguments = ["--mutants", "150", "--seed", "1", "--extension", str(extension), *map(str, corpus)]
    # CPython frees little of what it allocates as it ends.
    options = {"ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc", "LD_PRELOAD": " ".join(runtimes)}
    compare(arguments, **options)
