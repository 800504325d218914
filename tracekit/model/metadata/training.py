"""How a rank trains: buckets, units, stages, memory, number formats."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracekit.model.metadata.job import Integer

_MIB = 1 << 20

SettingValue = bool | Integer | float | str | None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket of DDP.

    Attributes:
        index: in the order in which DDP reduces them.
        size_bytes: of its gradients.
        dtype: of its gradients.
        parameters: their names.
        elements: how many each parameter has; empty: not known.
    """

    index: Integer
    size_bytes: Integer
    dtype: str
    parameters: list[str]
    elements: list[Integer] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DdpModule:
    """A module that DDP wraps.

    Attributes:
        module: its name.
        bucket_cap_bytes: the limit of a bucket's size; None: not known.
        static_graph: DDP's `static_graph`.
        find_unused: DDP's `find_unused_parameters`.
        rebuilt: the buckets are in the order in which gradients came.
        buckets: the buckets, in the order of their reduction.
        gradient_order: the order in which the gradients of a backward pass came, as places among the parameters of
            all buckets, one bucket after the other. Empty: not known.
        comm_hook: name of the communication hook; "none": DDP reduces itself; None: not known.
        gradient_as_bucket_view, broadcast_buffers: DDP's options of these names; None: not known.
    """

    module: str
    bucket_cap_bytes: Integer | None
    static_graph: bool
    find_unused: bool
    rebuilt: bool
    buckets: list[Bucket]
    gradient_order: list[Integer] = field(default_factory=list)
    comm_hook: str | None = None
    gradient_as_bucket_view: bool | None = None
    broadcast_buffers: bool | None = None


def bucket_cap_mb(cap_bytes: int) -> float:
    """Return DDP's option of that name, in MiB, for a limit in bytes: the shortest number that torch cuts to these."""
    rounded = (round(cap_bytes / _MIB, digits) for digits in range(6))
    return next((cap_mb for cap_mb in rounded if int(cap_mb * _MIB) == cap_bytes), cap_bytes / _MIB)


@dataclass(frozen=True, kw_only=True)
class FsdpUnit:
    """Parameters that FSDP, or ZeRO 3, gathers together.

    Attributes:
        module: the module whose parameters they are.
        unit_bytes: of all of them, unsharded, in the data type in which they are stored.
        shard_group: the id of the group over which they are sharded.
    """

    module: str
    unit_bytes: Integer
    shard_group: Integer


@dataclass(frozen=True, kw_only=True)
class PipelineLayout:
    """The pipeline that this rank is part of.

    Attributes:
        schedule: name of the schedule.
        stages: how many stages the pipeline has.
        virtual_stages: how many of them a rank has.
        microbatches: how many a step has.
        stage_ids: the stages of this rank.
        group: id of the group in which stages exchange activations.
    """

    schedule: str
    stages: Integer
    virtual_stages: Integer
    microbatches: Integer
    stage_ids: list[Integer]
    group: Integer | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """What the training of this rank takes, in bytes of its own shards.

    Attributes:
        parameter_bytes: the parameters.
        gradient_bytes: the gradients.
        optimizer_bytes: the optimizers' state, and their parameters that are none of the model's.
        peak_bytes: with an accelerator, the most that its allocator held; without one, that of the whole process.
        device_bytes: the memory that the accelerator has; None without one, or if it is not known.
    """

    parameter_bytes: Integer | None
    gradient_bytes: Integer | None
    optimizer_bytes: Integer | None
    peak_bytes: Integer | None
    device_bytes: Integer | None = None


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The number formats in use.

    Attributes:
        autocast: data types of the autocast contexts that were entered while recording.
        parameters: data types of the parameters, the one with the most bytes first.
        scaled: whether a gradient scaler was used.
    """

    autocast: list[str]
    parameters: list[str]
    scaled: bool


BLOCKING_VARIABLES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
"""Variables of the environment that make each launch wait until its kernel has ended, unless they are 0 or empty."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a wrapper of torch, or a framework, is configured.

    Attributes:
        component: what is configured: "fsdp1", "fsdp2", "zero", "compile", "environment".
        modules: names of the modules for which the values hold; empty: all of the component.
        values: by the names under which a program sets them.
    """

    component: str
    values: dict[str, SettingValue]
    modules: list[str] = field(default_factory=list)
