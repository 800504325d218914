"""The gallery of the site: a card for each report, which leads to its page."""

from __future__ import annotations

import html
import json
import re

from docs.reference.gallery import gallery_cards
from tests.places import ROOT


def test_each_report_has_a_card_with_its_first_finding() -> None:
    cards = dict(re.findall(r'<a href="(reports/\w+)/report.html">(.*?)</a>', gallery_cards()))

    assert sorted(cards) == sorted(
        page.parent.relative_to(ROOT).as_posix() for page in ROOT.glob("reports/*/report.html")
    )
    for folder, card in cards.items():
        findings = json.loads((ROOT / folder / "summary.json").read_text())["findings"]
        assert all(text in html.unescape(card) for text in [finding["text"] for finding in findings[:1]]), folder
