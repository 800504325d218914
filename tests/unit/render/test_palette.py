"""One palette: every colour is seen on light and dark, and the page has the same as the terminal."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tracekit.render.palette import LOOKS, Look
from tracekit.report.step_picture import PARTS


def luminance(colour: str) -> float:
    """Relative luminance (https://www.w3.org/TR/WCAG21/#dfn-relative-luminance)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_part_has_a_look() -> None:
    assert set(PARTS) == LOOKS.keys()


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_colour_has_a_contrast_of_three_to_black_and_to_white(look: Look) -> None:
    light = luminance(look.colour) + 0.05
    assert min(1.05 / light, light / 0.05) >= 3


def test_marks_and_colours_tell_the_parts_of_one_picture_apart() -> None:
    """GIVEN transfer and communication, of which a picture has one, and waiting and bubbles in one mark each."""
    apart = [name for name in LOOKS if name != "communication"]
    assert len({LOOKS[name].colour for name in apart}) == len(apart)
    assert len({LOOKS[name].mark for name in apart if name != "bubble"}) == len(apart) - 1


def test_the_page_has_the_same_colours_in_both_themes() -> None:
    style = (files("tracekit.render.page") / "assets" / "page.css").read_text("utf-8")
    for name in ("compute", "communication", "copy", "idle", "bubble"):
        assert re.findall(rf"--{name}: (#[0-9a-f]+);", style) == [LOOKS[name].colour] * 2
