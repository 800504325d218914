"""Modules of FSDP and ZeRO in the terminal: what waits for the parameters and gradients of which module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracekit.analysis.fsdp.sections import FSDP_SECTION
from tracekit.analysis.fsdp.units import Fsdp
from tracekit.analysis.table import rows_of
from tracekit.model.names.modules import names_together
from tracekit.model.quantities import file_size, milliseconds
from tracekit.render.console import statement, table
from tracekit.render.section_view import SectionView

_SHOWN = 12
_LONGEST_NAME = 18  # with it the table is 80 columns wide

__all__ = ["FSDP_VIEW", "fsdp_table"]


def fsdp_table(fsdp: Fsdp, strategies: Sequence[str]) -> list[object]:
    """Return a row for all layers alike. `strategies` of the run: they name the table."""
    rows = rows_of(fsdp, "by_layer")
    title = f"{_owner(strategies)} modules, the most exposed first (ms a step, mean over ranks)"
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)} rows, --json has all"
    cells = [
        (
            "n/a" if row["module"] is None else _shortened(row["module"] or "<root>", row["modules"]),
            row["kind"],
            row["phase"] or "n/a",
            f"{row['count']:.3g}",
            "n/a" if row["size_bytes"] is None else file_size(row["size_bytes"]),
            milliseconds(row["exposed_ns"]),
            "n/a" if row["prefetch_ns"] is None else milliseconds(row["prefetch_ns"]),
        )
        for row in rows[:_SHOWN]
    ]
    columns = ("module", "kind", "phase", "count", "size", "exposed", "issue\nto use")
    missing = [] if fsdp.unavailable is None else [statement("info", fsdp.unavailable.reason)]
    return [*table(title, columns, cells, left=3), *missing]


def _owner(strategies: Sequence[str]) -> str:
    of_zero = any(slug.startswith("zero") for slug in strategies)
    of_fsdp = any(slug.startswith("fsdp") for slug in strategies) or not of_zero
    return " and ".join(["FSDP"] * of_fsdp + ["ZeRO"] * of_zero)


def _shortened(names: str, modules: int) -> str:
    """Return the end of a long name, which tells modules apart, and how many modules there are.

    Of several modules together it is the first name and how many more there are.
    """
    (name, *others), left_out = names_together(names)
    more = f" +{len(others) + left_out}" if others else ""
    more += f" x{modules}" if modules > 1 else ""
    room = _LONGEST_NAME - len(more)
    return (name if len(name) <= room else "…" + name[1 - room :]) + more


def _json(fsdp: Fsdp) -> dict[str, Any]:
    return {
        "fsdp": rows_of(fsdp, "units"),
        "fsdp_remark": None if fsdp.unavailable is None else fsdp.unavailable.reason,
        "fsdp_prefetch": rows_of(fsdp, "prefetching"),
    }


FSDP_VIEW = SectionView(
    section=FSDP_SECTION,
    json=_json,
    text=lambda result, run, width: fsdp_table(result, run.strategies) if rows_of(result, "by_module") else [],
)
