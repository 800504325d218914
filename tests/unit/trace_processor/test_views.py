"""The documentation of tracekit's views: every view has a comment, and every column its meaning and unit."""

from __future__ import annotations

import re

from tracekit.trace_processor import views_sql

VIEW = re.compile(r"^CREATE PERFETTO VIEW (\w+)\(\n(.*?)^\) AS\n(.*?);$", re.MULTILINE | re.DOTALL)
UNITS = {"TIMESTAMP": "ns since the Unix epoch on the run's clock", "DURATION": "ns"}


def test_every_view_and_column_has_its_comment() -> None:
    text = views_sql()
    views = {match.group(1): match for match in VIEW.finditer(text)}
    assert len(views) == text.count("CREATE")
    assert {"tracekit_ranks", "tracekit_steps", "tracekit_lanes", "tracekit_collectives", "tracekit_buckets",
            "tracekit_actions"} <= set(views)  # fmt: skip
    for name, match in views.items():
        before = text[: match.start()].splitlines()
        assert before[-1].startswith("-- "), name
        lines = [line.strip() for line in match.group(2).splitlines()]
        assert len(lines) % 2 == 0
        for comment, column in zip(lines[::2], lines[1::2], strict=True):
            assert re.fullmatch(r"-- [A-Z0-9a-z].*\.", comment), (name, column)
            kind = column.rstrip(",").split(" ", 1)[1]
            assert UNITS.get(kind, "") in comment, (name, column)
            if column.startswith("size_bytes"):
                assert "bytes" in comment, name
