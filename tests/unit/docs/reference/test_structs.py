"""The pages of msgspec structs: types in words, defaults as JSON, meanings from docstrings."""

from __future__ import annotations

import msgspec
import pytest

from docs.reference.structs import describe, struct_pages
from tracekit.model import metadata

STRUCTS = [
    each
    for each in vars(metadata).values()
    if isinstance(each, type) and issubclass(each, msgspec.Struct) and each is not msgspec.Struct
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_struct_and_field_of_the_metadata_has_a_meaning(struct: type[msgspec.Struct]) -> None:
    described = describe(struct)

    assert described.meaning
    assert [field.name for field in described.fields if not field.meaning] == []


def test_every_struct_of_the_metadata_is_on_the_page() -> None:
    page = struct_pages(metadata.CaptureMetadata, metadata.Manifest, metadata.ProgressHeader)

    assert {struct.__name__ for struct in STRUCTS} == {
        line.removeprefix("### ") for line in page.splitlines() if line.startswith("#")
    }
