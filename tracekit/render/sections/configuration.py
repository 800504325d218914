"""How the job is configured, in the terminal and as JSON: a row for each component, `name=value` as a program sets it.

Where modules or ranks differ in a value, the value of most of them comes first, and the others stand behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tracekit.analysis.configuration.sections import CONFIGURATION_SECTION
from tracekit.analysis.configuration.settings import Configuration
from tracekit.analysis.table import rows_of
from tracekit.findings.steps import setting_text
from tracekit.model.names.modules import name_of_layers_alike
from tracekit.model.ranks import ranks_text
from tracekit.model.run import Run
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

_NAMED = ("ddp", "compile")  # components that are not of the whole model
_NAMED_MODULES = 3

__all__ = ["CONFIGURATION_VIEW", "configuration_block"]


def configuration_block(result: Configuration, run: Run) -> list[object]:
    """Return a title and a row for each component."""
    of_component: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of(result, "settings"):
        of_component[row["component"]][row["setting"]].append(row)
    rows = []
    for component, settings in of_component.items():
        all_ranks = {rank for of_setting in settings.values() for row in of_setting for rank in row["ranks"]}
        texts = [_setting(name, of_setting, all_ranks) for name, of_setting in settings.items()]
        if component in _NAMED:
            texts.append(_modules(_names_in(row for of_setting in settings.values() for row in of_setting)))
        if all_ranks != {summary.rank for summary in run.ranks}:
            texts.append(f"on {ranks_text(sorted(all_ranks))}")
        rows.append((component, " · ".join(texts)))
    return table("Configuration", ("", "settings"), rows, left=2)


def _setting(name: str, rows: Sequence[dict[str, Any]], all_ranks: set[int]) -> str:
    """Return `reshard_after_forward=True (<root>: False)`."""
    by_value: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_value[setting_text(row["value"])].append(row)
    (usual, usual_rows), *others = sorted(by_value.items(), key=lambda item: -_extent(item[1]))
    elsewhere = {name_of_layers_alike(name) for name in _names_in(usual_rows)}
    exceptions = [_exception(value, of_value, all_ranks, elsewhere) for value, of_value in others]
    return f"{name}={usual}" + (f" ({'; '.join(exceptions)})" if exceptions else "")


def _extent(rows: Iterable[dict[str, Any]]) -> int:
    """Return of how many modules, on how many ranks, a value is."""
    return sum(len(row["ranks"]) * max(len(row["modules"]), 1) for row in rows)


def _exception(value: str, rows: Sequence[dict[str, Any]], all_ranks: set[int], elsewhere: set[str]) -> str:
    """Return where a value holds, and the value. elsewhere: layers that have the usual value, by their common name."""
    ranks = {rank for row in rows for rank in row["ranks"]}
    modules = _names_in(rows)
    where = [_modules(modules, elsewhere)] if modules and ranks == all_ranks else []
    where += [ranks_text(sorted(ranks))] if ranks != all_ranks else []
    return f"{', '.join(where)}: {value}" if where else value


def _names_in(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["modules"]))


def _modules(names: Iterable[str], apart: Collection[str] = ()) -> str:
    """Return names of modules, of layers alike the common one unless that is in `apart`."""
    common = ((name, name_of_layers_alike(name)) for name in names)
    shown = list(dict.fromkeys((name if alike in apart else alike) or "<root>" for name, alike in common))
    more = f" and {len(shown) - _NAMED_MODULES} more" if len(shown) > _NAMED_MODULES else ""
    return ", ".join(shown[:_NAMED_MODULES]) + more


CONFIGURATION_VIEW = SectionView(
    section=CONFIGURATION_SECTION,
    json=lambda result: {"configuration": rows_of(result, "settings")},
    text=lambda result, run, width: configuration_block(result, run),
    null_keys=("configuration",),
)
