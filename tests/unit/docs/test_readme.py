"""The README: short, its first commands are those of a newcomer, and what it links to exists."""

from __future__ import annotations

import re

from docs.reference.links import page_links
from tests.places import ROOT

README = (ROOT / "README.md").read_text()


def test_its_first_two_commands_are_the_demo_and_the_tests() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    commands = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]

    assert commands[:2] == ["make demo", "make test"]


def test_files_that_it_links_to_exist() -> None:
    targets = {target for target, _ in page_links(README)}

    assert len(targets) > 15
    assert {target for target in targets if not (ROOT / target).is_file()} == set()
