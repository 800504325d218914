"""The command line: the table of commands, and the one place where errors become text and exit codes.

A command is a module of this package, or `command.py` in a folder of its own, with a click command of the same name.
The module is imported when the command runs, so `tracekit --help` waits for neither pandas nor torch. Results go to
stdout, everything else to stderr.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import click
from click.exceptions import Exit

from tracekit.cli.inputs.echo import echo, echo_traceback, remember_arguments
from tracekit.errors import TracekitError, missing_package
from tracekit.version import __version__

__all__ = ["cli", "main"]

# Names and their lines in `tracekit --help`, in the order in which a user needs them.
COMMANDS = {
    "record": "Run a training program as it is, and record its steps.",
    "analyze": "Say what slows a step, what causes it, and what to do.",
    "report": "Write the page of a run, with all its pictures, for the browser.",
    "open": "Show a run or a trace in Perfetto's UI.",
    "compare": "Say whether a run is slower than a baseline, and why.",
    "explain": "Say what a finding means, and why it is one.",
    "whatif": "Estimate what each fix would save a step.",
    "optables": "Analyse a pipeline that another tracer recorded.",
    "check": "Hold a run to limits, in CI: exit with 1 where it is over.",
    "info": "Show what a run holds: ranks, steps, device, clocks.",
    "merge": "Write one Perfetto trace of all ranks.",
    "query": "Ask the merged trace in SQL.",
    "hta": "Run an analysis of Holistic Trace Analysis (HTA).",
    "config": "Show which settings hold, and from where.",
    "cache": "Show where the cache is and how large, or empty it.",
    "demo": "Train a small model on two processes and analyse it.",
    "doctor": "Check this installation and name what is missing.",
}

_MOST_USED = 5  # which stand above the others
_OTHER_NAMES = {"diff": "compare", "view": "open", "show": "open", "html": "report", "sql": "query", "trace": "merge"}
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # since click 8.2; before, no error
_EXIT_USAGE = 2
_EXIT_INPUT = 3
_EXIT_BUG = 4
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as of other tools whose reader, such as `head`, has ended
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_EXIT_SIGNAL_BASE = 128  # plus the number of the signal, as in shells


class _SignalReceived(BaseException):
    """Raised for a signal that asks to end, so that every `with` block cleans up, as for KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class LazyGroup(click.Group):
    """A group that imports a command when it is called, inside the error boundary. A table names the commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        home = f"tracekit.cli.{cmd_name}"
        if importlib.util.find_spec(home) is None:
            home = f"tracekit.{cmd_name}.command"
        command = getattr(importlib.import_module(home), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from tracekit.cli.inputs.settings import similar_name

            # click would look for similar names among the commands that are already imported.
            similar = similar_name(_OTHER_NAMES.get(name, name), COMMANDS)
            if os.path.exists(name):  # noqa: PTH110 - no error for a name that no path can have
                similar = f" Did you mean '{shlex.join(['tracekit', 'analyze', *args])}'?"
            raise click.UsageError(f"No such command '{name}'.{similar}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = [(name.ljust(max(map(len, COMMANDS))), line) for name, line in COMMANDS.items()]
        for title, of_title in (("Commands", lines[:_MOST_USED]), ("More", lines[_MOST_USED:])):
            with formatter.section(title):
                formatter.write_dl(of_title)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        typed = [*args]  # click empties the list
        with error_boundary():
            context = super().make_context(info_name, args, parent, **extra)
            remember_arguments(context, typed)
            return context

    def invoke(self, ctx: click.Context) -> Any:
        with error_boundary():
            return super().invoke(ctx)


@contextlib.contextmanager
def error_boundary() -> Iterator[None]:
    """Turn every exception of the block into a line on stderr and click's `Exit` with the documented exit code."""
    try:
        yield
        # If the reader has ended, fail here, and not with a traceback when the interpreter exits.
        sys.stdout.flush()
    except Exit:
        raise
    except SystemExit as error:
        # rich exits this way, with another code, when its reader has ended.
        if isinstance(error.__context__, BrokenPipeError):
            raise Exit(_EXIT_BROKEN_PIPE) from None
        raise
    except BrokenPipeError:
        _discard(sys.stdout)
        raise Exit(_EXIT_BROKEN_PIPE) from None
    except _NO_ARGUMENTS as error:
        error.show()
        raise Exit(_EXIT_USAGE) from None
    except BaseException as error:
        text, code = describe_error(error)
        if isinstance(error, OSError):
            _discard(sys.stdout)
        if os.environ.get("TRACEKIT_DEBUG", "0") not in {"", "0"}:
            echo_traceback(error)
        try:
            echo(text, err=True)
        except OSError:  # stderr may be full, too
            _discard(sys.stderr)
        raise Exit(code) from None


def describe_error(error: BaseException) -> tuple[str, int]:
    """Return the line to print and the exit code for an exception that ended a command."""
    match error:
        case TracekitError():
            return _line(error.message, error.hint), error.exit_code
        case ModuleNotFoundError(name=str(name)) if not name.startswith("tracekit"):
            return describe_error(missing_package(error))
        case KeyboardInterrupt() | click.Abort():
            return "Interrupted.", _EXIT_INTERRUPTED
        case MemoryError():
            hint = "give --jobs 1, fewer --ranks or --steps, or more memory (ulimit -v)"
            return _line("there is not enough memory", hint), _EXIT_INPUT
        case _SignalReceived():
            return f"Ended by {signal.Signals(error.number).name}.", _EXIT_SIGNAL_BASE + error.number
        case OSError(errno=int(number), filename=None) if number in _FULL:
            # Errors of files name them. So this one is of what is printed.
            what = f"the output cannot be written: {os.strerror(number)}"
            return _line(what, "check the space on the disk"), _EXIT_INPUT
        case FileNotFoundError(filename=None) if _is_current_folder_gone():
            return _line("the current folder no longer exists", "go to another one: cd"), _EXIT_INPUT
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "tracekit"
            return _line(error.format_message(), f"what it takes: {command} --help"), _EXIT_USAGE
        case click.ClickException():
            return _line(error.format_message(), "check the path and its permissions"), _EXIT_INPUT
        case _:
            return (
                _line(
                    f"a bug in tracekit {__version__}: {type(error).__name__}: {error}",
                    "run it again with TRACEKIT_DEBUG=1 and report the traceback to torch-tracekit's issue tracker",
                ),
                _EXIT_BUG,
            )


def _is_current_folder_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - the question is whether there is one
    except FileNotFoundError:
        return True
    return False


def _line(message: str, hint: str) -> str:
    # A hint often ends in a command: a full stop would be pasted with it.
    return f"Error: {_sentence(message)} Hint: {hint.strip()}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _discard(stream: TextIO) -> None:
    # Otherwise flushing the buffer fails again, with a traceback, when the interpreter exits. Captured output has no
    # descriptor and needs none of this.
    with contextlib.suppress(OSError), Path(os.devnull).open("wb") as devnull:
        os.dup2(devnull.fileno(), stream.fileno())


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="tracekit", message="%(prog)s %(version)s")
@click.option("--config", metavar="FILE", help="Settings instead of the nearest tracekit.toml; 0: none.")
@click.pass_context
def cli(ctx: click.Context, config: str | None) -> None:
    """Show where the time of a distributed PyTorch training step goes.

    Record with tracekit record or the decorator tracekit.probe, then: tracekit analyze runs/
    """
    from tracekit.cli.inputs.settings import option_defaults

    ctx.obj = config
    if ctx.invoked_subcommand is not None:
        ctx.default_map = {ctx.invoked_subcommand: option_defaults(config)}


def main() -> None:
    """Entry point of the command `tracekit`."""
    _open_closed_streams()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores one on purpose
            signal.signal(number, _raise_signal)
    cli(prog_name="tracekit")


def _open_closed_streams() -> None:
    """Let what the caller has closed of stdin, stdout and stderr be the null device: else files get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends


def _raise_signal(number: int, frame: FrameType | None) -> None:
    """Raise `_SignalReceived`. A second signal kills the process."""
    signal.signal(number, signal.SIG_DFL)
    raise _SignalReceived(number)
