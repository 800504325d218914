"""The cost of commands whose CPU time and memory are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measuring.measure import Command, alternate, measure, peaks_below, round_order
from tests.places import ROOT

ALLOCATED = 200 << 20
HOLD = f"held = b'1' * {ALLOCATED}"
on_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


def python(program: str, **environment: str) -> Command:
    return Command(arguments=(sys.executable, "-c", program), environment=environment)


def test_peak_memory_is_that_of_the_process():
    # In a small process: a command's peak includes the memory of the one that starts it, here pytest.
    program = f"""
import sys
from benchmarks.measuring.measure import Command, measure
cost = measure(Command(arguments=(sys.executable, "-c", {HOLD!r})))
print(cost.peak_bytes, cost.worker_peak_bytes)
"""
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    peak_bytes, of_worker = output.split()
    assert ALLOCATED < int(peak_bytes) < 1.2 * ALLOCATED
    assert of_worker == "None"


def test_cpu_of_children_is_counted():
    burn = "import time; [None for _ in iter(lambda: time.process_time() < 0.3, False)]"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    assert measure(python(parent)).cpu_s >= 0.3


def test_the_output_of_an_earlier_run_is_removed_first(tmp_path: Path):
    written = tmp_path / "out"
    command = Command(arguments=(sys.executable, "-c", f"open({str(written)!r}, 'x').write('once')"), writes=written)
    for _ in range(2):
        measure(command)
    assert written.read_text() == "once"


@on_linux
def test_parent_and_worker_have_separate_peaks():
    worker = f"{HOLD}; print('holds', flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        peaks = peaks_below(process.pid)
        process.stdin.write("\n")
    of_parent = peaks.pop(process.pid)
    (of_worker,) = peaks.values()
    assert of_worker - of_parent == pytest.approx(ALLOCATED, rel=0.1)


def test_commands_may_write_bytecode(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert measure(python("import sys; print(sys.dont_write_bytecode)")).output == "False\n"


def test_a_command_gets_its_environment():
    assert measure(python("import os; print(os.environ['DECODER'])", DECODER="native")).output == "native\n"


def test_a_failing_command_ends_the_benchmark_with_its_message():
    with pytest.raises(SystemExit, match="no such trace"):
        measure(python("raise SystemExit('no such trace')"))


def test_commands_alternate(capfd):
    commands = {name: python(f"print({name!r})") for name in ("a", "b")}
    costs = alternate(commands, 3)
    assert {name: [cost.output for cost in found] for name, found in costs.items()} == {
        "a": ["a\n"] * 3,
        "b": ["b\n"] * 3,
    }
    logged = [line.split(":")[1].strip() for line in capfd.readouterr().err.splitlines()]
    assert logged == ["a", "b", "b", "a", "a", "b"]
    assert round_order(commands, 1) == ["b", "a"]
