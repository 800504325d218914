"""Entry point of the command `tracekit`, also as `python -m tracekit` where scripts are not on PATH."""

from __future__ import annotations

import signal
import sys

from tracekit.errors import missing_package


def main() -> None:
    """Run the command. Ctrl-C while it is imported ends it at once, and not with a traceback."""
    if sys.argv[1:2] == ["record"]:  # in a training job, which may have none of the packages of the other commands
        from tracekit.capture.record import main as record

        record(sys.argv[2:])
        return
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from tracekit.cli import main as run
    except ModuleNotFoundError as error:
        problem = missing_package(error)
        sys.stderr.write(f"Error: {problem.message}. Hint: {problem.hint}\n")
        sys.exit(problem.exit_code)

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
