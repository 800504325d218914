"""Mutated traces: both decoders agree about them, and the scanner touches no memory of others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.components import require
from tests.places import DATA, ROOT
from tests.unit.read.decode.decoders import native_decoder

native_decoder()


@pytest.fixture(scope="module")
def traces(real_traces: Path) -> list[str]:
    """Real traces of different writers, devices and years."""
    names = ["dlrm_8xV100/worker0*", "two_of_128/rank-0*", "single_rank/*", "gloo_rank34_of_300/*"]
    found = [
        path for name in names for path in sorted(real_traces.glob(name)) if path.name.endswith(("json", "json.gz"))
    ]
    return list(map(str, found + sorted(DATA.rglob("rank-000000.json.gz"))))


def run(*arguments: str) -> str:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", *arguments]
    variables = os.environ | {"PYTHONPATH": path}
    result = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr[-5000:]
    return result.stdout


@pytest.mark.parametrize("count", [400, pytest.param(5000, marks=pytest.mark.long)])
def test_the_decoders_agree_on_mutated_traces(traces: list[str], tmp_path: Path, count: int) -> None:
    """GIVEN real traces, mutated at random WHEN the native decoder reads one THEN the portable one reads the same."""
    assert len(traces) >= 6
    output = run("tests.fuzz.decoders", "--count", str(count), "--folder", str(tmp_path), *traces)
    understood = int(output.split(" understood by both")[0].split()[-1])
    assert understood > count // 12  # enough of them to compare


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> str:
    require("a C++ compiler", shutil.which("g++"), "g++ builds the extensions with AddressSanitizer")
    return str(tmp_path_factory.mktemp("sanitized"))


@pytest.mark.long
def test_no_mutation_makes_the_scanner_touch_other_memory(traces: list[str], sanitized: str, tmp_path: Path) -> None:
    """GIVEN the scanner built with sanitizers WHEN it reads mutated traces THEN no sanitizer reports anything."""
    run(
        "tests.fuzz.sanitized",
        sanitized,
        "tests.fuzz.decoders",
        "--minutes",
        "0.3",
        "--seed",
        "1",
        "--folder",
        str(tmp_path),
        *traces,
    )


@pytest.mark.long
def test_no_column_makes_the_encoder_touch_other_memory(sanitized: str, tmp_path: Path) -> None:
    """GIVEN the encoder built with sanitizers WHEN columns do not fit together THEN it refuses them."""
    run("tests.fuzz.sanitized", sanitized, "tests.fuzz.encoder", "--minutes", "0.3", "--folder", str(tmp_path))


@pytest.mark.long
def test_one_bad_file_costs_no_other_rank(tmp_path: Path) -> None:
    """GIVEN eight good ranks and one mutated file WHEN analysed THEN the eight have their own numbers."""
    run("tests.fuzz.command_line", "--minutes", "0.3", "--folder", str(tmp_path))
