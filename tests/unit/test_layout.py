"""The house rules that a newcomer relies on: small folders, short files, tests where the code is."""

from __future__ import annotations

import statistics
from pathlib import Path

import grimp
import networkx

from tests.places import ROOT

PACKAGE = ROOT / "tracekit"
TESTS = ROOT / "tests" / "unit"
MOST_MODULES = 15  # a folder, besides its __init__.py
MOST_LINES = 400
MEDIAN_LINES = 120


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def test_no_folder_has_more_modules_than_can_be_taken_in_at_a_glance() -> None:
    folders = {module.parent for module in modules()}
    sizes = {folder: sum(file.name != "__init__.py" for file in folder.glob("*.py")) for folder in folders}

    assert {str(folder): size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def test_files_are_short() -> None:
    sources = [*modules(), *PACKAGE.rglob("*.[ch]pp")]

    assert {str(file): lines(file) for file in sources if lines(file) > MOST_LINES} == {}
    assert statistics.median(map(lines, modules())) <= MEDIAN_LINES


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
