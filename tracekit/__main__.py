"""Entry point of the command `tracekit`, also as `python -m tracekit` where scripts are not on PATH."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command. Ctrl-C while it is imported ends it at once, and not with a traceback."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tracekit.cli import main as run

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
