"""What is compared of a run: its JSON result and its tables, without tracekit's version and the path of the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.values.corpus import ValueCase
from tracekit.errors import TracekitError
from tracekit.loading.load import load
from tracekit.render.json_result import result_dict
from tracekit.report.report import analyze

_DIGITS = 9
_NOTHING: tuple[Any, ...] = (None, [], {})


def values_of(case: ValueCase) -> dict[str, Any]:
    """Return the canonical result of a case: read natively, by one process, without a cache."""
    with case.at_hand() as path:
        return canonical(path)


def canonical(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = rounded(json.loads(exact_text(path)))
    return values


def exact_text(path: Path, **how: Any) -> str:
    """Return result and tables of a run as JSON, or why there are none. `how` goes to `load`.

    A table that stands in the result as it is, under its name, is there once.
    """
    try:
        report = analyze(load(path, **how))
    except TracekitError as error:
        return text_of({"error": str(error)}, path)
    result = result_dict(report)
    tables = {name: table.rows for name, table in report.filled_tables.items()}
    for versioned in (result, *tables["run"]):
        del versioned["tracekit_version"]
    more = {f"table {name}": rows for name, rows in tables.items() if rows != result.get(name)}
    return text_of(result | more, path)


def text_of(values: Any, path: Path | None = None) -> str:
    """Return JSON with sorted keys, in which the path of the run is "PATH"."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, default=str)
    return text if path is None else text.replace(json.dumps(str(path))[1:-1], "PATH")


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a short digest of each part of a canonical result that says something, such as a table."""
    return {
        name: hashlib.sha256(text_of(part).encode()).hexdigest()[:6]
        for name, part in values.items()
        if part not in _NOTHING
    }
