"""Which digest each part of each case has had since it was frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

FROZEN = Path(__file__).with_name("frozen.json")
_ABSENT = "-"


def read_frozen() -> dict[str, dict[str, str]]:
    """Return the digests by part by case."""
    stored = json.loads(FROZEN.read_text())
    return {
        case: {part: digest for part, digest in zip(stored["parts"], line.split(), strict=True) if digest != _ABSENT}
        for case, line in stored["cases"].items()
    }


def write_frozen(by_case: Mapping[str, Mapping[str, str]]) -> None:
    """Write a line a case, with a digest for each part of any case."""
    parts = sorted({part for digests in by_case.values() for part in digests})
    cases = {case: " ".join(by_case[case].get(part, _ABSENT) for part in parts) for case in sorted(by_case)}
    FROZEN.write_text(json.dumps({"parts": parts, "cases": cases}, indent=0) + "\n")
