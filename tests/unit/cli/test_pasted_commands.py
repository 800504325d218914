"""Commands that tracekit prints can be pasted: what follows `Next:`, what a hint ends in, what README and docs show."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tracekit.capture.record import help_text
from tracekit.checks import Check
from tracekit.cli import COMMANDS, cli

ROOT = Path(__file__).parents[3]
DDP = ROOT / "tests" / "data" / "ddp_slow_rank"


def tracekit(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="tracekit")


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, name
    return found


def parse(words: list[str]) -> dict[str, object]:
    """What click makes of the words of a command line: its parameters. Fails for what it does not take."""
    assert words[0] == "tracekit"
    if not words[1:] or words[2:] in (["--help"], ["--views"]):  # they print and end
        return {}
    return command(words[1]).make_context(words[1], words[2:]).params


def next_words(result: Result) -> list[str]:
    """The words that a shell makes of the last line, less `Next:`."""
    assert result.exit_code == 0, result.output
    *_, last = [line for line in result.stdout.splitlines() if line]
    assert last.startswith("Next: tracekit ")
    return shlex.split(last.removeprefix("Next: "))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run in a folder whose name a shell would take apart."""
    return Path(shutil.copytree(DDP, tmp_path / "it's a run; $HOME"))


@pytest.mark.parametrize("name", ["analyze", "info"])
def test_a_report_names_the_run_again(run: Path, name: str) -> None:
    words = next_words(tracekit(name, run, "--ranks", "0"))
    assert str(run) in words
    assert parse(words)["ranks"] == frozenset({0})


def test_a_merged_trace_is_named_again(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "all of it.pftrace"
    words = next_words(tracekit("merge", run, "-o", output))
    assert words == ["tracekit", "open", str(output)]
    assert output.is_file()
    parse(words)


def test_the_demo_s_trace_is_named_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a demo that has trained already WHEN it is analysed and merged THEN both last lines can be pasted."""
    module = __import__("tracekit.cli.demo", fromlist=["demo"])
    monkeypatch.setattr(module, "_train", lambda output: str(shutil.copytree(DDP, output)))
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    folder = tmp_path / "my demo"
    result = tracekit("demo", "-o", folder)
    words = next_words(result)
    assert words[:2] == ["tracekit", "open"]
    assert Path(words[2]).is_file()
    assert Path(words[2]).parent == folder
    (first, _) = [line for line in result.stdout.splitlines() if line.startswith("Next: ")]
    assert str(folder) in shlex.split(first)


@pytest.mark.parametrize("has_torch", [True, False])
def test_what_doctor_names_last_is_a_command(monkeypatch: pytest.MonkeyPatch, has_torch: bool) -> None:
    module = __import__("tracekit.cli.doctor", fromlist=["doctor"])
    checks = [Check(name="torch", state="ok" if has_torch else "absent", found="2")]
    monkeypatch.setattr(module, "examine", lambda: checks)
    words = next_words(tracekit("doctor"))
    assert words[1] == ("demo" if has_torch else "analyze")
    parse(words)


def test_a_hint_quotes_the_file_that_it_names(run: Path, tmp_path: Path) -> None:
    for result, expected in (
        (tracekit("merge", run, "-o", tmp_path), f"-o {tmp_path}/run.pftrace"),
        (tracekit("query", run), shlex.join(["tracekit", "query", str(run), "select * from tracekit_steps"])),
    ):
        assert result.stderr.endswith(f"{expected}\n"), result.stderr


def texts(node: ast.AST) -> Iterator[str]:
    """Every text below, X in the place of what is filled in."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def hints() -> Iterator[str]:
    """Every hint and remedy in the sources."""
    for file in (ROOT / "tracekit").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            name = node.arg if isinstance(node, ast.keyword) else None
            if isinstance(node, ast.Assign):
                name = getattr(node.targets[0], "id", None)
            if name in {"hint", "remedy", "INSTALL"}:
                yield from texts(node)


def test_what_a_hint_installs_exists_and_ends_it() -> None:
    installing = [hint for hint in hints() if "pip install" in hint]
    assert len(installing) >= 8
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for hint in installing:
        words = shlex.split(hint.partition("pip install ")[2])
        assert len([word for word in words if not word.startswith("--")]) == 1, hint
        for extra in re.findall(r"torch-tracekit\[(\w+)\]", hint):
            assert extra in extras


def test_options_and_commands_that_hints_name_exist() -> None:
    options = {option for name in COMMANDS for each in command(name).params for option in each.opts} | {"--help"}
    options |= {*re.findall(r"--[a-z-]+", help_text())}
    elsewhere = {"--force-reinstall", "--no-deps", "--no-cache-dir", "--no-binary", "--editable"}
    elsewhere |= {"--version"}  # of trace_processor_shell
    named = [option for hint in hints() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", hint)]
    assert len(named) >= 10
    assert set(named) - options - elsewhere == set()
    called = [name for hint in hints() for name in re.findall(r"(?:: |-m |with )tracekit (\w+)", hint)]
    assert len(called) >= 3
    assert set(called) <= set(COMMANDS)


def command_lines(block: str) -> Iterator[list[str]]:
    """The words of each first command of a line; one in quotes may go on in the next lines."""
    typed = ""
    for line in block.splitlines():
        typed += f"{line}\n"
        try:
            words = shlex.split(typed, comments=True)
        except ValueError:
            continue
        yield list(itertools.takewhile(lambda word: word not in {"&&", "||", "|", ";", ">"}, words))
        typed = ""
    assert not typed


def test_commands_of_readme_and_docs_are_taken() -> None:
    block = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [text for page in pages for text in block.findall(page.read_text())]
    lines = [words for each in blocks for words in command_lines(each)]
    taken = [words[words.index("tracekit") :] for words in lines if "tracekit" in words[:-1]]
    assert len(taken) >= 20
    for words in taken:
        parse(words)
