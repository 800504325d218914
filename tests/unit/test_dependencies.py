"""What pyproject.toml asks to be installed is what tracekit imports, and what it puts into the wheel is there."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tracekit import __version__
from tracekit.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIRED = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
FOR_USERS = {name: requirements for name, requirements in EXTRAS.items() if name not in {"all", "dev", "docs"}}
# Extras for a door of tracekit alone, whose command has the name of the extra.
OF_DOORS = {name for name in FOR_USERS if name in COMMANDS}
# Of the job that is recorded; which of their versions and builds, it decides.
FRAMEWORKS = {"accelerate", "lightning", "pytorch_lightning", "torch", "transformers"}
IMPORTING_CALLS = {"import_module", "find_spec", "__import__"}


def distribution(requirement: str) -> str:
    """The normalised name in a requirement such as `torch>=2.12`."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Modules that a file imports, by statement or by name; an `engine=` of pandas is one as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            named = [word.value for word in node.keywords if word.arg == "engine"]
            named += node.args[:1] if called in IMPORTING_CALLS else []
            yield from (name.value for name in named if isinstance(name, ast.Constant) and isinstance(name.value, str))


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The packages outside the standard library that a file of tracekit imports."""
    files = [*(ROOT / "tracekit").rglob("*.py")]
    assert len(files) > 200
    names = {name.partition(".")[0] for file in files for name in imported_modules(ast.parse(file.read_text()))}
    return names - set(sys.stdlib_module_names) - {"tracekit", ""}


@pytest.fixture(scope="module")
def distributions() -> dict[str, set[str]]:
    """The distributions that bring each package, as they are installed here."""
    found = importlib.metadata.packages_distributions()
    return {package: {distribution(name) for name in names} for package, names in found.items()}


def test_every_requirement_is_imported(imported: set[str], distributions: dict[str, set[str]]) -> None:
    """GIVEN the core's requirements and those of the extras THEN tracekit imports a package of each, unless it is not
    installed here.
    """
    used = {name for package in imported for name in distributions.get(package, ())}
    wanted = [distribution(each) for each in (*REQUIRED, *(each for extra in FOR_USERS.values() for each in extra))]
    assert len(wanted) == len(set(wanted))
    installed = set().union(*distributions.values())
    assert [name for name in wanted if name in installed and name not in used] == []


def test_every_import_is_required(imported: set[str], distributions: dict[str, set[str]]) -> None:
    wanted = {distribution(each) for each in (*REQUIRED, *(each for extra in FOR_USERS.values() for each in extra))}
    unasked = {package for package in imported - FRAMEWORKS if not distributions.get(package, {package}) & wanted}
    assert unasked == set()


def test_all_is_every_extra_of_a_user_but_those_of_doors() -> None:
    """Those of doors are tested with their door: HTA's brings JupyterLab."""
    of_all = [name for name in FOR_USERS if name not in OF_DOORS]
    assert EXTRAS["all"] == [f"torch-tracekit[{','.join(of_all)}]"]
    assert set(of_all) == {"parquet", "xlsx", "plot", "viewer", "isal", "zstd"}


def test_every_extra_stands_where_installing_is_described() -> None:
    text = (ROOT / "docs" / "getting-started.md").read_text()
    table = text[text.index("| extra | for |") :].split("\n\n")[0]
    assert set(re.findall(r"`([a-z]+)`(?=[^|]*\|[^|]*\|$)", table, re.MULTILINE)) == {*FOR_USERS, "all"}


def test_every_pattern_of_package_data_names_a_file() -> None:
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        folder = ROOT.joinpath(*package.split("."))
        assert [pattern for pattern in patterns if not list(folder.glob(pattern))] == []


def test_every_constraint_names_a_version() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = [line.partition("==")[0] for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)]
    assert len(pinned) == len(lines) == len(set(map(distribution, pinned)))
    of_extras = [requirement for name, each in EXTRAS.items() if name != "all" for requirement in each]
    asked = {distribution(each) for each in (*REQUIRED, *of_extras)}
    assert asked - set(map(distribution, pinned)) == set()


def test_the_recipe_of_conda_asks_for_what_pip_installs() -> None:
    recipe = yaml.safe_load((ROOT / ".ci" / "conda" / "recipe.yaml").read_text())
    asked = recipe["requirements"]
    assert asked["run"] == ["python", *(requirement.replace(">=", " >=") for requirement in REQUIRED)]
    assert PROJECT["build-system"]["requires"][0].replace(">=", " >=") in asked["host"]
    assert f'match(python, "{PROJECT["project"]["requires-python"].replace(">=", "<")}")' in recipe["build"]["skip"]


@pytest.mark.parametrize("file", [".ci/conda/recipe.yaml", "CITATION.cff"])
def test_files_for_others_have_the_version_and_the_license(file: str) -> None:
    text = (ROOT / file).read_text()
    assert re.findall(r'^ *version: "?([\d.]+)"?$', text, re.MULTILINE) == [__version__]
    assert re.findall(r"^ *license: (\S+)$", text, re.MULTILINE) == [PROJECT["project"]["license"]]


@pytest.mark.parametrize("page", ["recording.md", "recipes.md"])
def test_frameworks_that_are_said_to_have_been_run_are_those_that_are_tested(page: str) -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    named = re.findall(
        r"\b(torch|lightning|transformers|accelerate|deepspeed) (\d+\.\d+\.\d+)",
        (ROOT / "docs" / page).read_text().replace("DeepSpeed", "deepspeed"),
    )
    assert named
    assert [(name, version) for name, version in named if pinned[name] != version] == []
