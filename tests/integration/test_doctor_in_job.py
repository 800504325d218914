"""`tracekit doctor SCRIPT` in each process of a job: one page, from rank 0, about what the probe sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.recorded import Launch

SCRIPT = Path(__file__).with_name("plain_scripts") / "ddp.py"


@pytest.fixture(scope="module")
def page(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> str:
    own = tmp_path_factory.mktemp("doctor") / "recording-of-the-script"
    done = torchrun("-m", "tracekit", "doctor", SCRIPT, own)
    assert not own.exists()  # the checkup records elsewhere, and leaves nothing
    return done.stdout


def facts(page: str) -> dict[str, str]:
    """Text of each line of the page by its name; lines that go on are put together."""
    found: dict[str, str] = {}
    name = ""
    for line in page.splitlines():
        if (named := re.fullmatch(r"([a-z]+(?: [a-z]+)*) {2,}(\S.*)", line.rstrip())) is not None:
            name = named[1]
            found[name] = named[2]
        elif name and line.startswith("    "):
            found[name] += " " + line.strip()
        else:
            name = ""
    return found


def test_one_page_speaks_for_both_ranks(page: str) -> None:
    assert page.count("What the probe sees of") == 1
    assert facts(page)["ranks"].startswith("2 of 2 (0-1), on ")


def test_it_names_strategy_groups_and_units(page: str) -> None:
    found = facts(page)
    assert found["strategies"] == "ddp"
    assert found["groups"] == "default_pg: dp, ranks 0-1"
    assert found["buckets"] == "1 of DDP around Sequential"


def test_it_names_devices_what_the_profiler_records_and_the_clocks(page: str) -> None:
    found = facts(page)
    assert found["devices"].startswith("CPU: ")
    assert found["profiler"] == "records CPU"
    assert found["clocks"].startswith("2 of 2 measured; largest offset 0.0 us")


def test_memory_is_that_of_the_script_s_model(page: str) -> None:
    """16 x 32 + 32 and 32 x 4 + 4 numbers of 4 bytes, and twice as much for Adam, which counts steps besides."""
    parameters = 4 * (16 * 32 + 32 + 32 * 4 + 4)
    assert parameters == 2704
    assert facts(page)["memory"].startswith("2.7 kB parameters, 2.7 kB gradients, 5.42 kB optimizer, peak ")


def test_the_script_ends_after_the_step_that_was_recorded(page: str) -> None:
    assert facts(page)["steps"].startswith("2 recorded, ")
    assert "ended after its first recorded window" in " ".join(page.split())
    assert "tracekit analyze" in page.splitlines()[-1]


def test_every_line_fits_a_terminal(page: str) -> None:
    assert max(map(len, page.splitlines())) <= 80
