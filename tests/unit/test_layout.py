"""House rules: a file holds one idea, tests stand where the code is, no import cycle, one catalogue of findings."""

from __future__ import annotations

import ast
from pathlib import Path

import grimp
import networkx

from tests.places import ROOT

PACKAGE = ROOT / "tracekit"
TESTS = ROOT / "tests" / "unit"
MOST_LINES = 600


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def test_files_are_short() -> None:
    beside = [file for folder in ("tests", "probes", "benchmarks", "reports") for file in (ROOT / folder).rglob("*.py")]
    sources = [*modules(), *PACKAGE.rglob("*.[ch]pp"), *beside]

    assert {str(file): lines(file) for file in sources if lines(file) > MOST_LINES} == {}


def test_every_package_says_what_question_it_answers() -> None:
    packages = [module for module in modules() if module.name == "__init__.py"]

    assert [str(package) for package in packages if not package.read_text().startswith('"""')] == []


def test_unit_tests_stand_where_the_code_is() -> None:
    """A folder of unit tests has the name of the folder that it tests. Benchmarks are at the top of the repository."""
    folders = {file.parent.relative_to(TESTS) for file in TESTS.rglob("test_*.py")} - {Path()}
    strays = {folder for folder in folders if not (PACKAGE / folder).is_dir() and not (ROOT / folder).is_dir()}

    assert {str(stray) for stray in strays if not (PACKAGE / stray).with_suffix(".py").is_file()} == set()


def test_no_module_imports_itself_through_others() -> None:
    """The package offers names of its modules lazily, which is no import."""
    graph = grimp.build_graph("tracekit", exclude_type_checking_imports=True)
    imports = networkx.DiGraph(
        (importer, imported)
        for importer in graph.modules - {"tracekit"}
        for imported in graph.find_modules_directly_imported_by(importer) - {"tracekit"}
    )

    assert [sorted(cycle) for cycle in networkx.strongly_connected_components(imports) if len(cycle) > 1] == []


def test_only_the_catalogue_makes_findings() -> None:
    """So every sentence about a run is an entry with an id, and the analyses give it numbers alone."""
    makers = {
        str(module.relative_to(PACKAGE))
        for module in modules()
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding"
    }

    assert makers == {"findings/catalogue.py"}
