"""The pages of msgspec structs: types in words, defaults as JSON, meanings from docstrings."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from docs.reference.structs import Field, describe, struct_pages
from tracekit.model import metadata


class Wheel(msgspec.Struct):
    """A wheel.

    Attributes:
        size_mm: its diameter.
    """

    size_mm: int


class Car(msgspec.Struct, kw_only=True):
    """A car, which has
    wheels.

    Attributes:
        wheels: at the front
            and the back.
        width, height: in mm; None: not known.
        fuel: "petrol" or another.
    """

    wheels: list[Wheel]
    width: float | None = None
    height: float | None = None
    fuel: Literal["petrol", "diesel"] = "diesel"
    place: tuple[int, int] = (0, 0)
    notes: dict[str, str] = {}


def test_fields_have_types_in_words_and_meanings_of_the_docstring() -> None:
    car = describe(Car)

    assert car.meaning == "A car, which has wheels."
    assert car.parts == (Wheel,)
    assert car.fields == (
        Field(name="wheels", type="list of [Wheel](#wheel)", default=None, meaning="At the front and the back."),
        Field(name="width", type="float or null", default="null", meaning="In mm; null: not known."),
        Field(name="height", type="float or null", default="null", meaning="In mm; null: not known."),
        Field(name="fuel", type='`"diesel"` or `"petrol"`', default='"diesel"', meaning='"petrol" or another.'),
        Field(name="place", type="[int, int]", default="[0,0]", meaning=""),
        Field(name="notes", type="map of str", default="{}", meaning=""),
    )


def test_a_chapter_for_each_struct_and_what_it_is_made_of() -> None:
    page = struct_pages(Car, Wheel, level=2)

    assert [line for line in page.splitlines() if line.startswith("#")] == ["## Car", "## Wheel"]
    assert "| `size_mm` | int |  | Its diameter. |" in page


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
