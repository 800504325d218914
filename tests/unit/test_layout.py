"""The house rules that a newcomer relies on: small folders, short files, tests where the code is."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import grimp
import networkx

from tests.places import ROOT

PACKAGE = ROOT / "tracekit"
TESTS = ROOT / "tests" / "unit"
SEAM = {"parts", "columns", "sections"}  # of an analysis: lists and tables, tested by its other tests
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
    beside = [file for folder in ("tests", "probes", "benchmarks", "reports") for file in (ROOT / folder).rglob("*.py")]
    sources = [*modules(), *PACKAGE.rglob("*.[ch]pp"), *beside]

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


def rows_of_readme() -> dict[Path, str]:
    """Return the second column of the tables of tests/unit/README.md by module, relative to tracekit/."""
    rows: dict[Path, str] = {}
    folder = None
    for line in (TESTS / "README.md").read_text().splitlines():
        if heading := re.fullmatch(r"## `tracekit/(.*)`", line):
            folder = Path(heading[1])
        elif row := re.fullmatch(r"\| `(\w+\.py)` \| (.+) \|", line):
            assert folder is not None, line
            assert folder / row[1] not in rows, line
            rows[folder / row[1]] = row[2]
    return rows


def test_every_module_has_a_test_file_of_its_name_or_a_row_that_says_what_tests_it() -> None:
    names = {module.relative_to(PACKAGE) for module in modules() if not module.stem.startswith("__")}
    names -= {name for name in names if name.parts[0] == "analysis" and name.stem in SEAM}
    mirrored = {name for name in names if (TESTS / name.with_name(f"test_{name.name}")).is_file()}

    rows = rows_of_readme()

    assert {str(name) for name in names - mirrored - rows.keys()} == set(), "neither a test file nor a row"
    assert {str(name) for name in rows.keys() - names} == set(), "rows of modules that are gone"
    assert {str(name) for name in rows.keys() & mirrored} == set(), "rows of modules that have a test file"


def test_the_test_files_that_rows_name_exist() -> None:
    named = {test for cell in rows_of_readme().values() for test in re.findall(r"`([\w/]+\.py)`", cell)}

    assert len(named) > 50
    assert {test for test in named if not (ROOT / "tests" / test).is_file()} == set()
