"""Findings on DDP: the size and the order of its buckets, reductions that are not needed, and its settings."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.thresholds import BLOCKED_SHARE, NOTABLE_SAVING, NOTABLE_SHARE, TAIL_SHARE
from tracekit.model.texts import file_size


@entry(
    "ddp-bucket-size",
    "DDP bucket size",
    "buckets",
    NOTABLE_SAVING,
    example={
        "bucket_cap_mb": 5.0,
        "present_bucket_cap_mb": 25.0,
        "share": 0.06,
        "present_share": 0.19,
    },
)
def bucket_size(bucket_cap_mb: float, present_bucket_cap_mb: float, share: float, present_share: float) -> Sentence:
    """Buckets of another size would leave less of the step exposed, by a replay of its backward passes."""
    return (
        (
            f"buckets of {present_bucket_cap_mb:g} MB leave {present_share:.0%} of the step exposed. Buckets of "
            f"{bucket_cap_mb:g} MB would leave {share:.0%}"
        ),
        f"set bucket_cap_mb={bucket_cap_mb:g} in DistributedDataParallel (now {present_bucket_cap_mb:g})",
    )


def _every_micro_batch(reductions_per_update: int, share: float, option: str | None) -> Sentence:
    """Return the sentence. option: what leaves the reductions out; None where the program reduces by itself."""
    text = (
        f"gradients are reduced {reductions_per_update} times before each update, once a micro-batch. Those "
        f"before the last take {share:.0%} of the step"
    )
    what = "leave the reductions out" if option is None else f"use {option}"
    return text, f"{what} for all micro-batches but the last"


MICRO_BATCH_ENTRIES = {
    wrapper: entry(
        f"{wrapper}-every-micro-batch",
        "Gradient accumulation",
        "buckets",
        NOTABLE_SAVING,
        meaning=f"All gradients are reduced several times before one update: only the last sum is needed.{more}",
        example={"reductions_per_update": 4, "share": 0.31, "option": option},
    )(_every_micro_batch)
    for wrapper, option, more in (
        ("ddp", "no_sync()", ""),
        ("fsdp", "set_requires_gradient_sync(False)", " Until then each rank keeps gradients of all parameters."),
    )
}


@entry(
    "ddp-one-bucket",
    "DDP bucket size",
    "buckets",
    NOTABLE_SAVING,
    example={"module": "model", "size_mb": 97.5, "cap_mb": 200.0, "share": 0.23},
)
def one_bucket(module: str, size_mb: float, cap_mb: float | None, share: float) -> Sentence:
    """All gradients are in one bucket, whose reduction begins when the backward pass is over."""
    limit = "" if cap_mb is None else f" (bucket_cap_mb={cap_mb:g})"
    quarter_mb = size_mb / 4
    wanted_mb = round(quarter_mb) if quarter_mb >= 2 else round(quarter_mb, 1)
    text = (
        f"all gradients of {module} ({size_mb:.1f} MiB) are in one bucket{limit}, reduced after the last gradient. "
        f"It is exposed for {share:.0%} of the step"
    )
    return text, f"set bucket_cap_mb={wanted_mb:g}, so that most reductions run during the backward pass"


@entry(
    "ddp-last-reductions",
    "DDP tail",
    "buckets",
    TAIL_SHARE,
    example={"share": 0.08, "index": 3, "size_bytes": 26_214_400, "first_parameter": "embedding.weight"},
)
def last_reductions(
    share: float, index: int, size_bytes: int, first_parameter: str | None, smaller_saves_ns: int | None = None
) -> Sentence:
    """What is reduced after the last gradient takes a notable share of the step, on the rank that waits least.

    smaller_saves_ns: what smaller buckets save, by a replay; None where that is not known.
    """
    first = "" if first_parameter is None else f", from {first_parameter} on"
    text = (
        f"reductions after the last gradient take {share:.0%} of the step. "
        f"Most is bucket {index} ({file_size(size_bytes)}{first})"
    )
    if smaller_saves_ns is not None and smaller_saves_ns <= 0:
        return text, "send less, or use a faster link: smaller buckets save nothing, by their replay"
    return text, "make the last bucket smaller: a lower bucket_cap_mb of DistributedDataParallel"


@entry(
    "ddp-blocked-bucket",
    "DDP bucket order",
    "buckets",
    BLOCKED_SHARE,
    example={"rank": 0, "index": 2, "share": 0.11, "parameter": "head.weight", "behind": 1},
)
def blocked_bucket(rank: int, index: int, share: float, parameter: str, behind: int) -> Sentence:
    """A bucket is ready and waits for an earlier one, since DDP launches buckets in the order of their index."""
    text = (
        f"on rank {rank} bucket {index} is ready and waits {share:.0%} of the step for bucket {behind}. "
        f"The gradient of {parameter} there comes late"
    )
    return text, "define the parameters in the order in which the forward pass uses them"


@entry("ddp-find-unused-parameters", "DDP unused parameters", "buckets", example={"module": "model", "parameters": 148})
def find_unused_parameters(module: str, parameters: int) -> Sentence:
    """`find_unused_parameters` is set, and all parameters had gradients in every step: its all-reduce is not needed."""
    text = (
        f"{module} searches for unused parameters in every step, with an all-reduce. All {parameters} parameters "
        "had gradients in every step"
    )
    return text, "set find_unused_parameters=False"


@entry("ddp-before-rebuilding", "DDP warm-up", "buckets", example={"steps": [0], "size_bytes": 102_228_128})
def before_rebuilding(steps: Sequence[int], size_bytes: int) -> Sentence:
    """A recorded step is one of the first, in which DDP has all gradients in one bucket."""
    text = (
        f"in step {', '.join(map(str, steps))} DDP had not rebuilt its buckets. All gradients "
        f"({file_size(size_bytes)}) are in one that nothing overlaps, which is not typical"
    )
    return text, "record later steps: tracekit.probe(skip=10)"


@entry(
    "ddp-gradients-in-32-bits",
    "Gradient precision",
    "buckets",
    NOTABLE_SAVING,
    example={"present_share": 0.21, "share": 0.09, "comm_hook": "bf16_compress_hook"},
)
def gradients_in_32_bits(present_share: float, share: float, comm_hook: str) -> Sentence:
    """Gradients of 32 bits are reduced as they are, exposed; half as many bytes would take less, by a replay."""
    text = (
        f"reductions in 32 bits leave {present_share:.0%} of the step exposed. In 16 bits it would be "
        f"{share:.0%}, without the time to convert them"
    )
    return text, f"call model.register_comm_hook(None, {comm_hook}), if the gradients' precision allows"


@entry(
    "ddp-bucket-copies",
    "DDP bucket copies",
    "buckets",
    NOTABLE_SAVING,
    example={"share": 0.04, "size_bytes": 102_228_128},
)
def bucket_copies(share: float, size_bytes: int) -> Sentence:
    """Reduced gradients are copied out of the buckets, and the step waits for that."""
    return (
        f"copying reduced gradients out of the buckets takes {share:.0%} of the step",
        f"set gradient_as_bucket_view=True (now False), which also saves {file_size(size_bytes)}",
    )


@entry(
    "gradients-by-hand",
    "Manual all-reduce",
    "buckets",
    NOTABLE_SHARE,
    example={
        "all_reduces_per_step": 148,
        "parameters": 148,
        "after_backward": True,
        "exposed_share": 0.35,
        "bucket_cap_mb": None,
    },
)
def gradients_by_hand(
    all_reduces_per_step: float,
    parameters: int | None,
    after_backward: bool,
    exposed_share: float,
    bucket_cap_mb: float | None = None,
) -> Sentence:
    """The program reduces gradients by itself, and compute does not hide that."""
    count = all_reduces_per_step
    one_each = ", one a parameter" if count == parameters else ""
    option = "" if bucket_cap_mb is None else f" with bucket_cap_mb={bucket_cap_mb:g}"
    text = (
        f"the script itself averages gradients: {count:g} all-reduce{'s' * (count != 1)} a step{one_each}, "
        f"{'after' if after_backward else 'one by one in'} the backward pass. "
        f"{exposed_share:.0%} of the step is exposed"
    )
    use = f"use DistributedDataParallel{option}, which overlaps them with the backward pass"
    return text, f"{use}, unless ranks shard optimizer states or parameters"
