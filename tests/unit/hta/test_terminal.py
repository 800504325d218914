"""`tracekit hta` in a terminal of 80 columns: styled, within its width, and with no escape printed as text."""

from __future__ import annotations

from pathlib import Path

from tests.components import require_module
from tests.unit.cli.terminals import STYLE, assert_styled_within_the_width, named_runs, written

COMMANDS = ["hta h100 kernel-breakdown", "hta ddp overlap"]


def test_a_terminal_gets_styles_within_its_width(tmp_path: Path) -> None:
    require_module("hta")
    for command, (out, err) in written(named_runs(tmp_path), COMMANDS, terminal=True).items():
        assert STYLE.search(out), command
        assert_styled_within_the_width(command, out, err)
