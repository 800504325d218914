"""Findings on FSDP: units of the wrong size, all-gathers that come late, and parameters that are gathered twice."""

from __future__ import annotations

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.steps import setting_text
from tracekit.findings.thresholds import NOTABLE_SAVING, TINY_UNITS, UNIT_SHARE
from tracekit.model.texts import file_size


@entry(
    "fsdp-giant-unit",
    "FSDP unit size",
    "fsdp",
    UNIT_SHARE,
    NOTABLE_SAVING,
    example={"module": "", "size_bytes": 512_000_000, "share": 1.0},
)
def giant_unit(module: str, size_bytes: int, share: float) -> Sentence:
    """One unit holds nearly all parameters, so that nothing is computed while it is gathered or reduced."""
    text = (
        f"one unit ({module or '<root>'}, {file_size(size_bytes)}) holds {share:.0%} of the parameters. Its gathers "
        "and reductions overlap no compute"
    )
    return text, "wrap each block as a unit of its own: fully_shard(block)"


@entry(
    "fsdp-tiny-units",
    "FSDP unit size",
    "fsdp",
    TINY_UNITS,
    NOTABLE_SAVING,
    example={"units": 48, "size_bytes": 33_000.0, "latency_ns": 21_000, "together": 4},
)
def tiny_units(units: int, size_bytes: float, latency_ns: float, together: int) -> Sentence:
    """Units are so small that most of an all-gather is latency, and compute waits for them."""
    text = (
        f"{units} units of {size_bytes / 1e3:.0f} kB each are too small. {latency_ns / 1e3:.0f} us of each "
        "all-gather is latency, and compute waits for it"
    )
    return text, f"wrap {together} of them as one unit"


@entry(
    "fsdp-late-gathers",
    "FSDP prefetch",
    "fsdp",
    NOTABLE_SAVING,
    example={
        "phase": "forward",
        "modules": ["layers.1", "layers.2"],
        "asked_ahead": 0,
        "modules_ahead": 1,
        "option": "set_modules_to_forward_prefetch",
        "present": None,
        "memory_bytes": 64_000_000,
    },
)
def late_gathers(
    phase: str,
    modules: list[str],
    asked_ahead: int,
    modules_ahead: int,
    option: str,
    present: object,
    memory_bytes: int | None,
) -> Sentence:
    """Compute waits for all-gathers that could be issued earlier, by a replay of the passes."""
    names = modules[0] or "<root>"
    if len(modules) > 1:
        names = f"{len(modules)} modules, longest for {names}"
    asked = _modules_ahead(asked_ahead) if asked_ahead else "as they are needed"
    now = "" if present is None else f", now {setting_text(present)}"
    memory = "" if memory_bytes is None else f", for up to {file_size(memory_bytes)} of memory"
    return (
        f"{phase} waits for the all-gathers of {names}. They are issued {asked}",
        f"issue them {_modules_ahead(modules_ahead)} ({option}{now}){memory}",
    )


def _modules_ahead(count: int) -> str:
    return "one module ahead" if count == 1 else f"{count} modules ahead"


@entry(
    "fsdp-gathered-twice",
    "FSDP resharding",
    "whatif",
    NOTABLE_SAVING,
    example={
        "modules": ["layers.0", "layers.1"],
        "memory_bytes": 256_000_000,
        "option": "reshard_after_forward",
        "wanted": "False",
        "present": True,
    },
)
def gathered_twice(modules: list[str], memory_bytes: int | None, option: str, wanted: str, present: object) -> Sentence:
    """Parameters are freed after forward and gathered again in backward, though memory would hold them.

    present: the value of the option now; None where it is not known.
    """
    now = "" if present is None else f" (now {setting_text(present)})"
    more = "" if memory_bytes is None else f", for {file_size(memory_bytes)} more a rank"
    return (
        f"parameters of {len(modules)} modules are freed after forward and gathered again in backward",
        f"set {option}={wanted}{now}{more}",
    )
