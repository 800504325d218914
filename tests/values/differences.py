"""How two recorded results differ: by field without the indexes of lists, so that each kind of difference is a row."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RENAMES: dict[str, str] = {
    "dimensions[].charged_ns": "dimensions[].exposed_ns",
    "dimensions_by_name[].charged_ns": "dimensions_by_name[].exposed_ns",
    "dimensions_by_name[].worst_charged_ns": "dimensions_by_name[].worst_exposed_ns",
    "clock.ranks[].steps": "clock.ranks[].jump_ns",
    "buckets[].exposed_ns": "buckets[].uncovered_ns",
    "buckets_by_index[].exposed_ns": "buckets_by_index[].uncovered_ns",
    "buckets_by_index[].worst_exposed_ns": "buckets_by_index[].worst_uncovered_ns",
    "bucket_whatif[].exposed_ns": "bucket_whatif[].uncovered_ns",
    "notes[].kind": "notes[].id",
    "findings[].evidence.next": "findings[].evidence.next_dimension",
    "findings[].evidence.bytes": "findings[].evidence.size_bytes",
    "idle_places": "idle_locations",
    "idle_places[].annotation": "idle_locations[].annotation",
    "idle_places[].cause": "idle_locations[].cause",
    "idle_places[].operator": "idle_locations[].operator",
    "idle_places[].ranks": "idle_locations[].ranks",
    "idle_places[].source": "idle_locations[].source",
    "idle_places[].total_ns": "idle_locations[].total_ns",
    "idle_places[].worst_ns": "idle_locations[].worst_ns",
    "idle_places[].worst_rank": "idle_locations[].worst_rank",
    "findings[].evidence.main.place": "findings[].evidence.main.location",
    "findings[].evidence.main.place_share": "findings[].evidence.main.location_share",
    "findings[].evidence.second.place": "findings[].evidence.second.location",
    "findings[].evidence.second.place_share": "findings[].evidence.second.location_share",
}
"""Fields by their old path, and their path now, whose old values do not count. Kept until the next release."""

_EQUAL = 1e-9


Difference = tuple[str, Any, Any]
"""A case, and the first value of a field that differs, before and after."""


def differences(before: Path, after: Path) -> dict[str, list[Difference]]:
    """Return by field the cases in which it differs, each with the first two values; "missing" where one has none."""
    names = sorted({path.name for folder in (before, after) for path in folder.glob("*.json")})
    found: dict[str, list[Difference]] = defaultdict(list)
    for name in names:
        case = name.removesuffix(".json").replace("--", "/")
        if not (before / name).exists() or not (after / name).exists():
            found["(whole case)"].append((case, (before / name).exists(), (after / name).exists()))
            continue
        old, new = (_by_field(json.loads((folder / name).read_text())) for folder in (before, after))
        for field, values in list(old.items()):
            if field in RENAMES:
                old[RENAMES[field]] = values
                del old[field]
        for field in sorted(old.keys() | new.keys()):
            pair = _first_difference(old.get(field, ["missing"]), new.get(field, ["missing"]))
            if pair is not None:
                found[field].append((case, *pair))
    return dict(found)


def kind_of(found: list[Difference]) -> str:
    """Return whether a field that differs holds numbers or texts, or is not there before or after."""
    if all("missing" in pair for _, *pair in found):
        return "only before or only after"
    return "numbers" if any(_is_number(value) for _, *pair in found for value in pair) else "texts, and rows by number"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _by_field(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    fields: dict[str, list[Any]] = defaultdict(list)
    for field, value in _leaves("", values):
        fields[field].append(value)
    return fields


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, item)
    elif isinstance(value, list) and value:
        for item in value:
            yield from _leaves(f"{path}[]", item)
    else:
        yield path, value


def _first_difference(old: list[Any], new: list[Any]) -> tuple[Any, Any] | None:
    if len(old) != len(new):
        return f"{len(old)} values", f"{len(new)} values"
    return next(((a, b) for a, b in zip(old, new, strict=True) if not _are_equal(a, b)), None)


def _are_equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, int | float):
        return abs(a - b) <= _EQUAL * max(abs(a), abs(b))
    return bool(a == b)
