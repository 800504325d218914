"""Every command in a terminal: with its colors, within its width, and with no escape printed as text.

Those of doors are tested with their door.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.cli.terminals import (
    COLOR,
    ESCAPE_AS_TEXT,
    STYLE,
    WIDTH,
    assert_styled_within_the_width,
    named_runs,
    written,
)
from tracekit.api import analyze
from tracekit.cli import cli
from tracekit.findings.finding import Finding

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
OTHER_RUNS = [
    *(f"analyze {run}" for run in ("pipeline", "fsdp", "healthy", "server", "elastic")),
    *("whatif pipeline", "explain pipeline", "analyze pipeline --full", "compare served server", "compare ddp h100"),
    *("explain", "query --views", *(f"{command} --help" for command in cli.commands)),
]
AT_ANY_WIDTH = [*STYLED, *OTHER_RUNS, "merge ddp -o run.pftrace", "--help"]
SHOWN_FINDINGS = {"analyze": 1, "report": 3, "explain": 9}
FEW = ["analyze ddp", "analyze ddp --full", "info h100 --kernels", "compare ddp ddp", "config", "analyze nowhere"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return named_runs(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def runs(recorded: Path, tmp_path: Path) -> Path:
    """Return a folder of its own, since commands write files."""
    return shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def findings(recorded: Path) -> dict[str, tuple[Finding, ...]]:
    names = ("ddp", "pipeline", "fsdp", "healthy", "server")
    return {name: analyze(str(recorded / name), cache=False).findings for name in names}


@pytest.mark.parametrize("width", [60, WIDTH, 120])
def test_no_width_cuts_a_claim(runs: Path, findings: dict[str, tuple[Finding, ...]], width: int) -> None:
    """GIVEN terminals from narrow to wide THEN they have colours and nothing else that controls them, lines keep to the
    width, nothing fails, and what is found and what to do is there in full.
    """
    commands = list(dict.fromkeys([*AT_ANY_WIDTH, *PLAIN] if width == WIDTH else AT_ANY_WIDTH))
    for command, (out, err) in written(runs, commands, terminal=True, width=width).items():
        assert STYLE.search(out) or command in (*PLAIN, *OTHER_RUNS), command
        assert COLOR.search(out) or command not in COLORED, command
        assert_styled_within_the_width(command, out, err, width)
        assert "Traceback" not in err, command
        text = "".join(STYLE.sub("", out).split()).lower()
        verb, name, *options = [*command.split(), ""]
        shown = 9 if "--full" in options else 0 if options[:-1] else SHOWN_FINDINGS.get(verb, 0)
        for finding in findings.get(name, ())[:shown]:
            claims = [finding.text, *([finding.action] if finding.action and verb != "explain" else [])]
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
