"""Communication within layers and by dimension of the mesh, and the load of experts. Times are ms a step.

In the terminal, tables show what layers wait for, how even the load of experts is, what each dimension's communication
costs, and dispatch and combine of expert parallelism.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tracekit.analysis.communication.mesh_dimensions import MeshDimensions
from tracekit.analysis.communication.sections import DIMENSIONS_SECTION
from tracekit.analysis.model_parallel.expert_communication import ExpertCommunication
from tracekit.analysis.model_parallel.expert_load import ExpertLoad
from tracekit.analysis.model_parallel.layers import TensorParallel
from tracekit.analysis.model_parallel.sections import TENSOR_SECTION
from tracekit.analysis.table import rows_of
from tracekit.findings.stragglers import ESTIMATED
from tracekit.model.quantities import file_size, milliseconds
from tracekit.model.run import Run
from tracekit.render.console import statement, table
from tracekit.render.section_view import SectionView

__all__ = [
    "DIMENSIONS_VIEW",
    "TENSOR_VIEW",
    "dimension_table",
    "expert_communication_tables",
    "expert_table",
    "tensor_table",
]

_SHOWN = 12
_LONGEST_NAME = 15  # with it the table is 80 columns wide
_SHOWN_RANKS = 8
_SHOWN_EXPERTS = 16
_NEARLY_THE_SAME = 1.1
_COUNTED_COLUMNS = ("rank", "received", "to mean\nof others", "most in layer", "to mean\nof others")
_ESTIMATED_COLUMNS = ("rank", "experts\ncompute", "to mean\nof others")


def tensor_table(tensor: TensorParallel) -> list[object]:
    """Return a row for all layers alike. `of layer` is the share of the time that these take in that phase."""
    rows = rows_of(tensor, "by_layer")
    title = "Communication within layers, the most exposed first (ms a step, mean)"
    if any(row["inferred"] for row in rows):
        title = title.replace("layers,", "layers (inferred from DTensor's events),")
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)} rows, --json has all"
    cells = [
        (
            _name(row),
            row["parallelism"],
            row["kind"],
            row["phase"] or "n/a",
            f"{row['count']:.3g}",
            "n/a" if row["size_bytes"] is None else file_size(row["size_bytes"]),
            milliseconds(row["exposed_ns"]),
            "n/a" if row["layer_share"] is None else f"{row['layer_share']:.0%}",
        )
        for row in rows[:_SHOWN]
    ]
    columns = ("module", "for", "kind", "phase", "count", "size", "exposed", "of\nlayer")
    return table(title, columns, cells, left=4)


def _name(row: dict[str, Any]) -> str:
    if row["module"] is None:
        return "n/a"
    several = f" x{row['modules']}" if row["modules"] > 1 else ""
    name, room = row["module"] or "<root>", _LONGEST_NAME - len(several)
    return (name if len(name) <= room else "…" + name[1 - room :]) + several


def expert_table(load: ExpertLoad) -> list[object]:
    """Return the ranks whose experts have the most load, over all layers; a line where they have nearly the same.

    Loads that are known and those that are estimated are in tables of their own.
    """
    rows = rows_of(load, "ranks")
    estimated = [row for row in rows if row["received_bytes"] is None]
    counted = [row for row in rows if row["received_bytes"] is not None]
    return [*_load_table(counted, estimated=False), *_load_table(estimated, estimated=True)]


def _load_table(rows: list[dict[str, Any]], *, estimated: bool) -> list[object]:
    most = max((row["ratio"] for row in rows if row["ratio"] is not None), default=None)
    if most is None:
        return []
    if most < _NEARLY_THE_SAME:
        text = f"experts are evenly loaded: none gets more than {most:.2f} times the mean of the others"
        return [statement("info", f"{text} ({ESTIMATED})" if estimated else text)]
    amount = "compute_ns" if estimated else "received_bytes"
    layers: dict[tuple[int | None, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        layers[row["group"], row["rank"]].append(row)
    total = {key: sum(row[amount] for row in of_layer) for key, of_layer in layers.items()}
    cells: list[tuple[str, ...]] = []
    for (group, rank), size in sorted(total.items(), key=lambda item: (-item[1], item[0][1]))[:_SHOWN_RANKS]:
        others = [other for (of, member), other in total.items() if of == group and member != rank]
        ratio = f"{size * len(others) / sum(others):.2f}" if sum(others) else "n/a"
        if estimated:
            cells.append((str(rank), milliseconds(size), ratio))
            continue
        worst = max(layers[group, rank], key=lambda row: row["ratio"] or 0.0)
        layer = "n/a" if worst["module"] is None else worst["module"] or "<root>"
        worst_ratio = "n/a" if worst["ratio"] is None else f"{worst['ratio']:.2f}"
        cells.append((str(rank), file_size(size), ratio, layer, worst_ratio))
    title = "Load of experts: what all-to-alls bring to each rank (a step, mean)"
    if estimated:
        title = f"Load of experts, {ESTIMATED} (ms a step, mean)"
    if len(total) > len(cells):
        title += f"; the {len(cells)} most loaded of {len(total)}"
    return table(title, _ESTIMATED_COLUMNS if estimated else _COUNTED_COLUMNS, cells)


def _text(tensor: TensorParallel, run: Run, width: int) -> list[object]:
    layers = tensor_table(tensor) if rows_of(tensor, "by_module") else []
    load = expert_table(tensor.experts) if rows_of(tensor.experts, "ranks") else []
    return [*layers, *load, *expert_communication_tables(tensor.expert_communication)]


TENSOR_VIEW = SectionView(
    section=TENSOR_SECTION,
    json=lambda result: {
        "tensor": rows_of(result, "modules"),
        "expert_load": rows_of(result.experts, "ranks"),
        "expert_communication": rows_of(result.expert_communication, "ranks"),
    },
    text=_text,
)


def dimension_table(dimensions: MeshDimensions) -> list[object]:
    rows = rows_of(dimensions, "by_name")
    title = "Dimensions of the mesh (ms a step, mean over ranks)"
    if any(row["inferred"] for row in rows):
        title += "; *: inferred"
    cells = [
        (
            f"{row['dimension'] or 'n/a'}{'*' * row['inferred']}",
            "n/a" if row["group_size"] is None else str(row["group_size"]),
            "n/a" if row["hosts"] is None else str(row["hosts"]),
            milliseconds(row["total_ns"]),
            milliseconds(row["exposed_ns"]),
            f"{row['share']:.0%}",
            "n/a" if row["waiting_ratio"] is None else f"{row['waiting_ratio']:.0%}",
            f"{row['worst_rank']}: {milliseconds(row['worst_exposed_ns'])}",
        )
        for row in rows
    ]
    columns = ("group", "ranks", "hosts", "total", "exposed", "of\nstep", "late\nranks", "worst\nrank")
    return table(title, columns, cells)


DIMENSIONS_VIEW = SectionView(
    section=DIMENSIONS_SECTION,
    json=lambda result: {
        "dimensions": rows_of(result, "by_rank"),
        "dimensions_by_name": rows_of(result, "by_name"),
    },
    text=lambda result, run, width: dimension_table(result) if rows_of(result, "by_name") else [],
)


def expert_communication_tables(communication: ExpertCommunication) -> list[object]:
    """Return a row for each direction, phase and microbatch; nothing without expert parallelism."""
    rows = rows_of(communication, "means")
    if not rows:
        return []
    title = "Tokens to experts and back (ms a step, mean over the ranks that take part)"
    if len(rows) > _SHOWN_EXPERTS:
        title += f"; {_SHOWN_EXPERTS} of {len(rows)} rows, --json has all"
    labelled = any(row["microbatch"] is not None for row in rows)
    columns = ["", "phase", *["micro-\nbatch"] * labelled, "count", "size", "total", "hidden", "exposed", "worst\nrank"]
    cells = [_cells(row, labelled=labelled) for row in rows[:_SHOWN_EXPERTS]]
    return table(title, columns, cells, left=2)


def _cells(row: dict[str, Any], *, labelled: bool) -> list[str]:
    microbatch = ["n/a" if row["microbatch"] is None else str(row["microbatch"])] * labelled
    hidden = f"{row['overlapped_ns'] / row['total_ns']:.0%}" if row["total_ns"] else "n/a"
    return [
        row["direction"],
        row["phase"] or "n/a",
        *microbatch,
        f"{row['count']:.3g}",
        "n/a" if row["size_bytes"] is None else file_size(row["size_bytes"]),
        milliseconds(row["total_ns"]),
        hidden,
        milliseconds(row["exposed_ns"]),
        f"{row['worst_rank']}: {milliseconds(row['worst_exposed_ns'])}",
    ]
