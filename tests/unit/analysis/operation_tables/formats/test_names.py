"""The names of columns and kinds are those of the documentation."""

from __future__ import annotations

import re

from tests.places import ROOT
from tracekit.analysis.operation_tables.columns import OPERATIONS
from tracekit.analysis.operation_tables.formats.names import COLUMN_NAMES, KIND_NAMES, column_of, kind_of
from tracekit.analysis.operation_tables.operations import KINDS

PAGE = (ROOT / "docs" / "operation-tables.md").read_text()


def test_the_page_has_every_column_with_its_names_and_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    documented = {name: (re.findall(r"`(\w+)`", names), meaning) for name, _, _, names, meaning in rows}
    assert list(documented) == [column.name for column in OPERATIONS.columns]
    for column in OPERATIONS.columns:
        names, meaning = documented[column.name]
        assert names == list(COLUMN_NAMES[column.name]), column.name
        assert meaning == column.meaning


def test_the_page_has_every_kind() -> None:
    section = PAGE.split("## Kinds")[1].split("\n## ")[0]
    assert set(KINDS) <= set(re.findall(r"`([\w-]+)`", section))
    assert set(KIND_NAMES) == set(KINDS)
    for name in re.findall(r"`([\w-]+)`", section):
        assert kind_of(name) is not None or name in {"stage", "microbatch"}, name


def test_no_name_stands_for_two_kinds_or_columns() -> None:
    for table in (KIND_NAMES, COLUMN_NAMES):
        every = [name for names in table.values() for name in names]
        assert len(every) == len(set(every))


def test_a_column_of_its_own_name_comes_first_and_names_of_times_say_their_unit() -> None:
    assert column_of("kind", ["name", "Kind"]) == ("Kind", None)
    assert column_of("microbatch", ["Micro-Batch"]) == ("Micro-Batch", None)
    assert column_of("start", ["end_us", "Start Time_us"]) == ("Start Time_us", "us")
    assert column_of("stage", ["rank"]) is None
