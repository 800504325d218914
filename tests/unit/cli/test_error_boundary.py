"""Every way for a command to end: the line on stderr, nothing on stdout, and the documented exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.places import DATA
from tracekit import __version__, cli
from tracekit.errors import InputError, NotATraceError, OutputError, TracekitError, UsageError

ROOT = Path(__file__).parents[3]
DDP = ROOT / "tests" / "data" / "ddp_slow_rank"


def raiser(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.fixture
def run_body(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], Result]:
    """Return a function that runs `tracekit body`, a command that calls the given function."""
    monkeypatch.setitem(cli.COMMANDS, "body", "Stands in for any command.")
    monkeypatch.delenv("TRACEKIT_DEBUG", raising=False)

    def run(body: Callable[[], None]) -> Result:
        command = click.Command("body", callback=body)
        monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, ctx, name: command)
        return CliRunner().invoke(cli.cli, ["body"])

    return run


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (UsageError("--a contradicts --b", hint="give one of them"), 2),
        (InputError("runs/x: no such folder", hint="check the spelling"), 3),
        (NotATraceError("a.json: no trace in it", hint="give a Kineto trace"), 3),
        (OutputError("x.json: disk full", hint="free some space"), 3),
        (TracekitError("columns differ in length", hint="report it"), 4),
    ],
)
def test_an_error_is_one_line_with_its_hint(
    run_body: Callable[[Callable[[], None]], Result], error: TracekitError, exit_code: int
) -> None:
    result = run_body(raiser(error))
    assert result.exit_code == exit_code
    assert result.stderr == f"Error: {error.message}. Hint: {error.hint}\n"
    assert result.stdout == ""


def test_control_characters_of_a_file_name_are_escaped(
    run_body: Callable[[Callable[[], None]], Result],
) -> None:
    result = run_body(raiser(InputError("a\x1b[2J\n\u202eb\udcff.json: no trace", hint="look")))
    assert result.stderr == "Error: a\\x1b[2J\\x0a\\u202eb\\udcff.json: no trace. Hint: look\n"


@pytest.mark.parametrize("arguments", [["config"], ["analyze", str(DDP)], ["analyze", ".", "--anonymize"]])
def test_a_current_folder_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    result = CliRunner().invoke(cli.cli, arguments)
    assert result.stderr == "Error: the current folder no longer exists. Hint: go to another one: cd\n"
    assert result.exit_code == 3


def test_an_interrupt_exits_with_130(run_body: Callable[[Callable[[], None]], Result]) -> None:
    result = run_body(raiser(KeyboardInterrupt()))
    assert result.exit_code == 130
    assert result.stderr == "Interrupted.\n"


def test_an_interrupt_of_the_imports_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tracekit", "--version"]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", -signal.SIGINT)


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), EOFError("stream ended")])
def test_any_other_error_is_a_bug_in_one_line(
    run_body: Callable[[Callable[[], None]], Result], error: Exception
) -> None:
    result = run_body(raiser(error))
    assert result.exit_code == 4
    assert result.stderr.startswith(f"Error: a bug in tracekit {__version__}: {type(error).__name__}")
    assert "TRACEKIT_DEBUG=1" in result.stderr
    assert result.stderr.count("\n") == 1


def test_too_little_memory_is_no_bug(run_body: Callable[[Callable[[], None]], Result]) -> None:
    result = run_body(raiser(MemoryError()))
    assert (result.exit_code, result.stderr.count("\n")) == (3, 1)
    assert result.stderr.startswith("Error: there is not enough memory. Hint: give --jobs 1")


def test_debug_shows_the_traceback_before_the_line(
    run_body: Callable[[Callable[[], None]], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEKIT_DEBUG", "1")
    result = run_body(raiser(ZeroDivisionError("division by zero")))
    assert result.exit_code == 4
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: a bug in tracekit")


def test_the_exit_code_of_a_command_is_kept(run_body: Callable[[Callable[[], None]], Result]) -> None:
    def body() -> None:
        click.get_current_context().exit(1)

    result = run_body(body)
    assert result.exit_code == 1
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--verison"], "Error: No such option '--verison'. Did you mean '--version'?"),
        (["diff"], "Error: No such command 'diff'. Did you mean 'compare'?"),
        (["view"], "Error: No such command 'view'. Did you mean 'open'?"),
        ([str(DATA)], f"Error: No such command '{DATA}'. Did you mean 'tracekit analyze {DATA}'?"),
        (["analyse"], "Error: No such command 'analyse'. Did you mean 'analyze'?"),
        (["frobnicate"], "Error: No such command 'frobnicate'."),
        (["demo", "--jobs"], "Error: No such option '--jobs'."),
        (["demo", "runs"], "Error: Got unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(cli.cli, arguments, prog_name="tracekit")
    assert result.exit_code == 2
    assert result.stderr.startswith(line)
    assert result.stderr.rstrip().endswith("--help")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_no_command_shows_the_help_as_a_usage_error() -> None:
    result = CliRunner().invoke(cli.cli, [], prog_name="tracekit")
    assert result.exit_code == 2
    assert "Usage: tracekit" in result.stderr


@pytest.mark.parametrize("command", ["analyze", "report", "check", "query", "hta"])
def test_help_has_own_options_before_those_of_all_commands(command: str) -> None:
    shown = CliRunner().invoke(cli.cli, [command, "--help"], prog_name="tracekit").stdout
    titles = ("\nOptions:\n", "\nWhich run:\n", "\nHow files are read:\n")
    own, run, reading = (shown.index(title) for title in titles)
    assert own < shown.index("  -h, --help") < run < shown.index("  --ranks ") < reading < shown.index("  --no-cache")


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(option: str) -> None:
    result = CliRunner().invoke(cli.cli, [option], prog_name="tracekit")
    assert (result.exit_code, result.stdout) == (0, f"tracekit {__version__}\n")


def test_help_fits_80_columns_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from tracekit.cli import main\n"
        "sys.argv = ['tracekit', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "heavy = {'numpy', 'pandas', 'torch', 'rich', 'perfetto', 'fsspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert max(len(line) for line in shown.stdout.splitlines()) <= 80
    assert all(name in shown.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(cli.cli, [name, "--help"], prog_name="tracekit")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"Usage: tracekit {name}")


@pytest.mark.parametrize("write", ["sys.stdout.write", "Console().out"])
def test_a_reader_that_ends_early_is_no_error(write: str) -> None:
    code = (
        "import sys, click\n"
        "from rich.console import Console\n"
        "from tracekit import cli\n"
        f"write = {write}\n"
        "def body():\n"
        "    for _ in range(2000):  # more than any pipe holds\n"
        "        write('x' * 1000)\n"
        "command = click.Command('body', callback=body)\n"
        "cli.COMMANDS['body'] = ''\n"
        "cli.LazyGroup.get_command = lambda self, ctx, name: command\n"
        "sys.argv = ['tracekit', 'body']\n"
        "cli.main()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (141, b"")


def ended_by(number: int, code: str, *arguments: str | Path) -> tuple[int, str]:
    """Run `code` and then `tracekit` with these arguments, and send it the signal. Return its exit code and stderr.

    `code` makes the command print a line at the point where it is to be ended. When this returns, all processes of the
    command have ended, because none holds its stdout.
    """
    # A signal that is ignored where the tests are started (by nohup, for example) would stay ignored.
    code = f"import signal\nsignal.signal({int(number)}, signal.SIG_DFL)\n" + code
    code += f"\nimport sys\nsys.argv = ['tracekit', *{[str(argument) for argument in arguments]}]\n"
    code += "if __name__ == '__main__':\n    from tracekit.cli import main\n    main()\n"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "began\n"
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
        return process.returncode, stderr


@pytest.mark.parametrize(
    ("number", "command"),
    [(signal.SIGHUP, "merge"), (signal.SIGTERM, "merge"), (signal.SIGTERM, "open"), (signal.SIGTERM, "query")],
)
def test_a_signal_leaves_no_files_behind(tmp_path: Path, number: signal.Signals, command: str) -> None:
    """GIVEN a run that is being merged WHEN the process gets a signal THEN its scratch folder is removed."""
    code = (
        f"import tempfile\ntempfile.tempdir = {str(tmp_path)!r}\n"
        "import os, tracekit.report.report\nfrom tests.mortal import begin_and_hang\n"
        f"def analyze(run):\n    assert os.listdir({str(tmp_path)!r})\n    begin_and_hang(0)\n"
        "tracekit.report.report.analyze = analyze\n"
    )
    more = {"merge": ["-o", tmp_path / "run.pftrace"], "open": ["--print-url"], "query": ["select 1"]}
    ended = ended_by(number, code, command, DDP, *more[command], "--jobs", "1")
    assert ended == (128 + number, f"Ended by {number.name}.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_the_workers() -> None:
    """GIVEN workers that hang WHEN the parent alone gets a signal THEN it ends them and does not wait."""
    code = (
        "import click\nfrom tests.mortal import begin_and_hang\nfrom tracekit import cli\n"
        "from tracekit.loading.workers import map_ranks\n"
        "command = click.Command('hang', callback=lambda: map_ranks(begin_and_hang, [(0,), (1,)], jobs=2))\n"
        "cli.COMMANDS['hang'] = ''\n"
        "cli.LazyGroup.get_command = lambda self, ctx, name: command\n"
    )
    assert ended_by(signal.SIGTERM, code, "hang") == (143, "Ended by SIGTERM.\n")


# ---- streams that cannot be written -----------------------------------------------------------------------------


def in_shell(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `tracekit` with redirections of a shell; Python buffers what it prints, as it does for most users."""
    script = f"{sys.executable} -m tracekit {command}"
    environment = os.environ | {"TRACEKIT_CACHE": "0", "PYTHONUNBUFFERED": "", **variables}
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, check=False, cwd=ROOT, encoding="latin-1"
    )


def test_a_full_output_is_one_line() -> None:
    ended = in_shell(f"analyze {DDP} >/dev/full")
    what = "Error: the output cannot be written: No space left on device. Hint: check the space on the disk\n"
    assert (ended.returncode, ended.stderr) == (3, what)
    assert in_shell("analyze /nonexist 2>/dev/full").returncode == 3


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code(closed: str) -> None:
    assert in_shell(f"analyze {DDP} {closed}").returncode == 0
    assert in_shell(f"analyze /nonexist {closed}").returncode == 3


def test_a_coding_without_our_characters_shows_marks() -> None:
    ended = in_shell(f"analyze {DDP}", PYTHONIOENCODING="latin-1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "? compute" in ended.stdout
