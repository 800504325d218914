"""Every command in a terminal of 80 columns: with its colors, within its width, and with no escape printed as text.

Those of doors are tested with their door.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.terminals import (
    COLOR,
    ESCAPE_AS_TEXT,
    STYLE,
    assert_styled_within_the_width,
    named_runs,
    written,
)
from tracekit.api import analyze

STYLED = [
    "analyze ddp",
    "analyze ddp --full",
    "analyze ddp --section breakdown",
    "analyze h100",
    "analyze h100 --full",
    "info ddp",
    "info h100 --kernels",
    "report ddp",
    "explain ddp",
    "explain straggler ddp",
    "whatif ddp",
    "compare ddp ddp",
    "check ddp --baseline ddp",
    "demo",
    "config",
    "doctor",
]
PLAIN = [
    "analyze ddp --json",
    "analyze nowhere",
    "analyze ddp --section nothing",
    "anlyze",
    "links --help",
    "analyze ddp --brief",
    "query ddp 'select 1'",
    "merge ddp -o run.pftrace",
    "open ddp --print-url",
    "cache dir",
    "--help",
]
COLORED = ["analyze ddp", "analyze h100", "demo", "doctor"]
COMMANDS = STYLED + PLAIN
AT_ANY_WIDTH = [*STYLED[:-3], "compare ddp h100", "query --views"]
SHOWN_FINDINGS = {"analyze ddp": 1, "analyze ddp --full": 9, "report ddp": 3, "explain ddp": 9}
FEW = ["analyze ddp", "analyze ddp --full", "info h100 --kernels", "compare ddp ddp", "config", "analyze nowhere"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return named_runs(tmp_path)


def test_a_terminal_gets_colors_within_its_width(runs: Path) -> None:
    """GIVEN a terminal of 80 columns THEN styles are obeyed, and nothing else on stdout controls it."""
    for command, (out, err) in written(runs, COMMANDS, terminal=True).items():
        assert STYLE.search(out) or command in PLAIN, command
        assert COLOR.search(out) or command not in COLORED, command
        assert_styled_within_the_width(command, out, err)


@pytest.mark.parametrize("width", [60, 120])
def test_no_width_cuts_a_claim(runs: Path, width: int) -> None:
    """GIVEN a narrow and a wide terminal THEN lines keep to it, and what is found and what to do is there in full."""
    findings = analyze(str(runs / "ddp"), cache=False).findings
    for command, (out, err) in written(runs, AT_ANY_WIDTH, terminal=True, width=width).items():
        assert_styled_within_the_width(command, out, err, width)
        text = "".join(STYLE.sub("", out).split()).lower()
        for finding in findings[: SHOWN_FINDINGS.get(command, 0)]:
            claims = [finding.text, *([finding.action] if finding.action and command != "explain ddp" else [])]
            assert [claim for claim in claims if "".join(claim.split()).lower() not in text] == [], command


def test_a_terminal_without_colors_gets_none(runs: Path) -> None:
    """GIVEN NO_COLOR THEN stdout has no escape, and stderr none but those that move the cursor."""
    for command, (out, err) in written(runs, FEW, terminal=True, NO_COLOR="1").items():
        assert "\x1b" not in out, command
        assert not COLOR.search(err), command


def test_a_file_gets_no_escapes(runs: Path) -> None:
    """GIVEN pipes in place of terminals THEN neither has an escape, and no escape is printed as text."""
    for command, (out, err) in written(runs, FEW, terminal=False).items():
        assert "\x1b" not in out + err, command
        assert not ESCAPE_AS_TEXT.search(out + err), command
