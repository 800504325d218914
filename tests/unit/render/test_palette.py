"""One palette: every colour is seen on light and dark, and the page has the same as the terminal."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tracekit.render.palette import LOOKS, Look, series_looks
from tracekit.report.step_picture import PARTS

# Some of those in tracing/base/color_scheme.html of catapult; chrome://tracing reads no trace that has another.
CHROME_NAMES = {
    *("background_memory_dump", "light_memory_dump", "detailed_memory_dump", "generic_work", "good", "bad", "terrible"),
    *("olive", "rail_response", "rail_animation", "rail_idle", "rail_load", "heap_dump_child_node_arrow", "startup"),
    *("thread_state_uninterruptible", "thread_state_iowait", "thread_state_running", "thread_state_runnable"),
}


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


def test_series_of_a_plot_that_are_no_parts_get_colours_that_no_part_has_there() -> None:
    """GIVEN phases, of which one is a part of the picture, and waits THEN these keep their colours."""
    data, *phases, waits = series_looks(["data", "forward", "backward", "optimizer", "other", "queued"])
    assert (data, waits) == (LOOKS["data_loading"], LOOKS["waiting"])
    assert len({look.colour for look in (data, *phases, waits)}) == 6
    assert not any(look.is_hollow for look in phases)


def test_chrome_has_white_for_outlines_and_a_name_for_each_other_colour() -> None:
    named = {look.colour: look.chrome_name for look in LOOKS.values()}
    assert {look.chrome_name for look in LOOKS.values() if look.is_hollow} == {"white"}
    filled = [named[look.colour] for look in LOOKS.values() if not look.is_hollow and look is not LOOKS["transfer"]]
    assert len(set(filled)) == len(filled)
    assert set(filled) <= CHROME_NAMES
