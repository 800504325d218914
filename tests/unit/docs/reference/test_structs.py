"""The pages of dataclasses: types in words, defaults as JSON, meanings from docstrings."""

from __future__ import annotations

from dataclasses import is_dataclass

import pytest

from docs.reference.structs import describe, struct_pages
from tracekit.model import metadata

STRUCTS = [each for each in vars(metadata).values() if is_dataclass(each) and each is not metadata.Progress]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_struct_and_field_of_the_metadata_has_a_meaning(struct: type) -> None:
    described = describe(struct)

    assert described.meaning
    assert [field.name for field in described.fields if not field.meaning] == []


def test_every_struct_of_the_metadata_is_on_the_page() -> None:
    page = struct_pages(metadata.CaptureMetadata, metadata.Manifest, metadata.ProgressHeader)

    assert {struct.__name__ for struct in STRUCTS} == {
        line.removeprefix("### ") for line in page.splitlines() if line.startswith("#")
    }
