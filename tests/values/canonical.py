"""What is compared of a report: its JSON result, which holds all tables, without what no value depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tracekit.analysis.report import Report
from tracekit.render.json_result import result_dict

_DIGITS = 9
_NO_VALUES = ("tracekit_version", "paths", "run_id", "other_runs")

__all__ = ["canonical", "digests", "text_of"]


def canonical(report: Report) -> dict[str, Any]:
    """Return the JSON result with numbers of nine digits, and without version and paths."""
    return _plain(json.loads(json.dumps(result_dict(report), default=str)))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in sorted(value.items()) if key not in _NO_VALUES}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def text_of(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, ensure_ascii=False)


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a short digest of each part of a canonical result, such as a table."""
    return {name: hashlib.sha256(text_of({name: part}).encode()).hexdigest()[:8] for name, part in values.items()}
