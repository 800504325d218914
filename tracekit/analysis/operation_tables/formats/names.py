"""By which names tables call their columns and the kinds of operations.

Names are compared in small letters, with `_` for blanks and `-`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["COLUMN_NAMES", "KIND_NAMES", "SHOWN_COLUMNS", "UNITS", "column_of", "kind_of", "known_name"]

COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "rank": ("global_rank", "device", "gpu", "worker"),
    "kind": ("op", "operation", "optype", "op_type", "type", "name", "phase", "direction"),
    "microbatch": ("micro_batch", "microbatch_id", "micro_batch_id", "mb", "mb_id"),
    "start": ("begin", "start_time", "start_ts", "ts"),
    "end": ("stop", "end_time", "end_ts"),
    "duration": ("dur", "elapsed"),
    "stage": ("stage_id", "pp_stage", "virtual_stage", "gmc"),
    "chunk": ("model_chunk", "chunk_id", "vpp_rank", "mc"),
    "step": ("iteration", "iter", "step_id"),
    "replica": ("dp_rank", "dp", "data_parallel_rank"),
}
"""Other names of each column. A name of a time may end in its unit: `start_us`."""

UNITS: Mapping[str, int] = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
"""Units of time in ns."""

SHOWN_COLUMNS = 12
"""How many columns of a table an error names."""

KIND_NAMES: Mapping[str, tuple[str, ...]] = {
    "F": ("forward", "fwd", "fw", "fp", "forward_compute", "forward_step", "forward_pass", "forward_warmup"),
    "B": (
        *("backward", "bwd", "bw", "bp", "backward_compute", "backward_step", "backward_pass", "backward_cooldown"),
        *("full_backward", "bw_full"),
    ),
    "I": ("backward_input", "input_backward", "b_input", "bwd_input", "dgrad", "backward_b"),
    "W": ("backward_weight", "weight_backward", "b_weight", "bwd_weight", "wgrad", "backward_w", "weight"),
    "forward-recv": ("recv_forward", "recv_f", "recv_activation"),
    "backward-recv": ("recv_backward", "recv_b", "recv_grad"),
    "forward-send": ("send_forward", "send_f", "send_activation"),
    "backward-send": ("send_backward", "send_b", "send_grad"),
    "all-reduce": (
        *("allreduce", "grads_all_reduce", "grad_sync", "all_grads_sync", "layernorm_grads_all_reduce"),
        *("embedding_grads_all_reduce", "separate_grads_all_reduce", "reduce_grads"),
    ),
    "reduce-scatter": ("reducescatter", "grads_reduce_scatter"),
    "all-gather": ("allgather", "params_all_gather"),
    "optimizer": ("optimizer_step", "opt", "optimizer_clip_main_grad", "update"),
    "data": ("batch_generator", "dataloader", "load", "load_data", "data_loading"),
    "other": ("gc", "checkpoint", "evaluation", "logging", "idle_work"),
}
"""Other names of each kind."""


def _simplified(name: object) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


_KIND_OF = {_simplified(name): kind for kind, names in KIND_NAMES.items() for name in (kind, *names)}


_TIMES = ("start", "end", "duration")
_KNOWN = {_simplified(name) for column, names in COLUMN_NAMES.items() for name in (column, *names)}
_KNOWN |= {
    f"{_simplified(name)}_{unit}" for column in _TIMES for name in (column, *COLUMN_NAMES[column]) for unit in UNITS
}


def known_name(name: object) -> str | None:
    """Return a name of a column as names are compared; None for one that no column of an operation has."""
    simplified = _simplified(name)
    return simplified if simplified in _KNOWN else None


def kind_of(name: object) -> str | None:
    """Return the kind that a name stands for; None for a name that is not known."""
    return _KIND_OF.get(_simplified(name))


def column_of(column: str, present: Iterable[str]) -> tuple[str, str | None] | None:
    """Return which of the columns that are present is `column`, and the unit that its name ends in.

    None where there is no such column. A column of its own name comes before one of another name.
    """
    by_name = {_simplified(name): name for name in reversed(list(present))}
    for name in (column, *COLUMN_NAMES[column]):
        if name in by_name:
            return by_name[name], None
        if column in _TIMES:
            for unit in UNITS:
                if f"{name}_{unit}" in by_name:
                    return by_name[f"{name}_{unit}"], unit
    return None
