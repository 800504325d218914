"""The table of torch's private names: the code uses no other, uses each, and the installed torch has each."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.components import require_module
from tests.places import ROOT
from tracekit.capture.private_names.entry import OLDEST_TORCH, PrivateName
from tracekit.capture.private_names.table import PRIVATE_NAMES
from tracekit.checks import in_this_build, is_there

PACKAGE = ROOT / "tracekit"
TABLE = PACKAGE / "capture" / "private_names"
# What touches torch, or knows how torch names the modules that it wraps.
FOLDERS = ("capture", "checks", "integrations", "cli", "model/names")
# Private names that are not torch's: of the standard library, and of tracekit's own classes beyond `self`.
NOT_TORCH = {
    ("capture/ending.py", "_thread"),
    ("capture/job/groups.py", "_add"),
    ("capture/job/groups.py", "_find_threads"),
    ("capture/observers/communication_purposes.py", "_getframe"),
    ("capture/probe_object.py", "_after_fork"),
    ("capture/probe_object.py", "_busy"),
    ("capture/rpc/serving.py", "_replace"),
    ("checks.py", "_scanner"),
    ("checks.py", "_encoder"),
}
PRIVATE = re.compile(r"(?<![A-Za-z0-9_])_[A-Za-z]\w*(?<!__)$")


def sources() -> list[Path]:
    files = [file for folder in FOLDERS for file in (PACKAGE / folder).rglob("*.py")]
    return sorted(file for file in files if TABLE not in file.parents and file.name != TABLE.name + ".py")


def private_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the private names that a file takes from objects other than `self`, each with its line.

    A name counts as an attribute, as an import, and as a string that consists of names and dots: such strings are
    given to `getattr`, `hasattr` and `Patch`, or look up a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in {"self", "cls"}:
            names = [node.attr]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+", node.value):
            names = node.value.split(".")
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("tracekit."):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        else:
            continue
        yield from ((name, node.lineno) for name in names if PRIVATE.match(name))


@functools.cache
def used_names() -> dict[str, list[str]]:
    """Return where each private name of torch is used: files with lines, by the name."""
    used: dict[str, list[str]] = {}
    for file in sources():
        place = str(file.relative_to(PACKAGE))
        for name, line in private_names(ast.parse(file.read_text())):
            if (place, name) not in NOT_TORCH:
                used.setdefault(name, []).append(f"{place}:{line}")
    return used


def unlisted_names(table: Sequence[PrivateName]) -> dict[str, list[str]]:
    listed = {part for name in table for part in name.path.split(".")}
    return {name: places for name, places in used_names().items() if name not in listed}


def version_of(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def test_the_code_uses_no_private_name_that_is_not_listed() -> None:
    assert len(used_names()) > 70
    assert unlisted_names(PRIVATE_NAMES) == {}


def test_an_entry_that_is_removed_is_missed() -> None:
    """GIVEN the table without one entry whose name no other entry has THEN the places that use it are found."""
    parts = [part for name in PRIVATE_NAMES for part in set(name.path.split("."))]
    for name in PRIVATE_NAMES:
        last = name.path.rpartition(".")[2]
        if PRIVATE.match(last) and parts.count(last) == 1:
            rest = [other for other in PRIVATE_NAMES if other is not name]
            assert last in unlisted_names(rest)


def test_every_listed_name_is_used() -> None:
    words: set[str] = set()
    for node in (node for file in sources() for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+", node.value):
            words.update(node.value.split("."))

    assert [name.path for name in PRIVATE_NAMES if name.path.rpartition(".")[2] not in words] == []


def test_every_entry_is_listed_once_and_says_what_it_is_for() -> None:
    paths = [name.path for name in PRIVATE_NAMES]

    assert len(set(paths)) == len(paths)
    for name in PRIVATE_NAMES:
        assert name.use
        assert name.fallback
        assert any(PRIVATE.match(part) for part in name.path.split(".")) or name.path == "torch._C.Future.wait"
        assert version_of(name.since) >= version_of(OLDEST_TORCH)
        assert not name.instead or name.instead in paths


def test_the_installed_torch_has_every_name_of_its_version() -> None:
    torch = require_module("torch")
    installed = version_of(torch.__version__)

    there = {name.path for name in PRIVATE_NAMES if is_there(name)}
    for name in PRIVATE_NAMES:
        if in_this_build(name) and name.instead not in there:
            assert (name.path in there) == (installed >= version_of(name.since)), name.path


def test_the_oldest_torch_is_the_one_that_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert f"torch>={OLDEST_TORCH}" in project["optional-dependencies"]["dev"]
