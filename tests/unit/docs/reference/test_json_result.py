"""The description of the JSON result, compared with the results of recorded and simulated runs and of the gallery."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from docs.reference.json_fields import OBJECTS, ROWS, TOP, Type
from tests.places import DATA, ROOT
from tracekit.explain.section import Unavailable
from tracekit.explain.sections import SECTIONS, TABLES
from tracekit.render.json_result import result_dict, result_json
from tracekit.render.sections.json import section_dict
from tracekit.report.report import Report, analyze

COLUMNS = {table.name: {column.name for column in table.columns} for table in TABLES}
GALLERY = sorted(ROOT.glob("reports/*/summary.json"))
OPTIONAL = {"pipeline.actions"}
CHECKS: dict[Type, Any] = {
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) is float,
    "str": lambda value: type(value) is str,
    "bool": lambda value: type(value) is bool,
    "list of int": lambda value: all(type(each) is int for each in value),
    "list of str": lambda value: all(type(each) is str for each in value),
    "list of int or null": lambda value: all(each is None or {type(x) for x in each} <= {int} for each in value),
    "list of int, or str": lambda value: value == "world" or all(type(each) is int for each in value),
    "object": lambda value: type(value) is dict,
    "map": lambda value: type(value) is dict,
    "list of objects": lambda value: type(value) is list,
}


def problems(value: Any, kind: str, path: str) -> Iterator[str]:
    """What of a value differs from its description: its type, and the names and types of what is below it."""
    if kind.endswith("?") and value is None:
        return
    if not CHECKS[kind.removesuffix("?")](value):  # type: ignore[index]
        yield f"{path}: {value!r} is no {kind}"
    elif path in ROWS:
        yield from (f"{path}: {[*row]}" for row in value if row.keys() != COLUMNS[ROWS[path]])
    elif kind.startswith("list of objects"):
        for each in value:
            yield from problems_of_object(each, f"{path}[]")
    elif kind.startswith("object"):
        yield from problems_of_object(value, path)


def problems_of_object(value: dict[str, Any], path: str) -> Iterator[str]:
    described = {field.name: field.type for field in OBJECTS[path]}
    yield from (f"{path}.{name}: not described" for name in value.keys() - described.keys())
    yield from (
        f"{path}.{name}: missing" for name in described.keys() - value.keys() if f"{path}.{name}" not in OPTIONAL
    )
    for name in value.keys() & described.keys():
        yield from problems(value[name], described[name], f"{path}.{name}")


def problems_of(result: dict[str, Any]) -> list[str]:
    described = {key.name: key.type for key in TOP}
    found = [f"{name}: not described" for name in result.keys() - described.keys()]
    for name in result.keys() & described.keys():
        found += problems(result[name], described[name], name)
    return found


@pytest.fixture(scope="module")
def recorded() -> Report:
    return analyze(DATA / "ddp_slow_rank")


@pytest.fixture(scope="module")
def pipeline() -> Report:
    return simulate(JobSpec(family="pipeline", pp=2, layers=2, microbatches=2, steps=2)).report()


@pytest.mark.parametrize("name", ["recorded", "pipeline"])
def test_a_result_is_as_described(name: str, request: pytest.FixtureRequest) -> None:
    report: Report = request.getfixturevalue(name)
    result = json.loads(result_json(report, actions=True))

    assert problems_of(result) == []
    assert {key.name for key in TOP} == set(result)


@pytest.mark.parametrize("file", GALLERY, ids=lambda file: file.parent.name)
def test_results_of_the_gallery_are_as_described(file: Any) -> None:
    assert problems_of(json.loads(file.read_text())) == []


def test_every_key_comes_from_the_section_that_is_named(recorded: Report) -> None:
    of_section = {key: name for name, keys in keys_of(recorded).items() for key in keys}
    without_result = {key for name in SECTIONS for key in section_dict(SECTIONS[name], Unavailable(reason="why"))}

    assert {key.name: key.section for key in TOP if key.section is not None} == of_section
    assert without_result <= {key.name for key in TOP if key.type.endswith("?")}
    assert {key.name for key in TOP if key.section is None} == set(result_dict(recorded)) - set(of_section)


def keys_of(report: Report) -> dict[str, set[str]]:
    return {name: {*section_dict(SECTIONS[name], result)} for name, result in report.results.items()}


def test_tables_exist_and_every_object_is_reached() -> None:
    assert set(ROWS.values()) <= set(COLUMNS)
    assert {key.section for key in TOP} - {None} == set(SECTIONS)
    reached = {f"{path}.{value.name}" for path, values in OBJECTS.items() for value in values} | {k.name for k in TOP}
    assert {path for path in OBJECTS if path.removesuffix("[]") not in reached} == set()
    assert {path for path in ROWS if path not in reached} == set()
