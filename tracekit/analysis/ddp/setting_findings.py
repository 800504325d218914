"""What to set in DDP besides the size of its buckets, where a replay shows that it pays and it is not set yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracekit.analysis.ddp.bucket_whatif import LEAST_SHARE, BucketWhatIf
from tracekit.analysis.ddp.parts import BUCKET_REDUCTIONS
from tracekit.analysis.finding import Finding
from tracekit.model.metadata import DdpModule
from tracekit.model.quantities import file_size
from tracekit.model.run import Run

__all__ = ["setting_findings"]


def setting_findings(run: Run, modules: Sequence[DdpModule], outcome: BucketWhatIf, step_ns: float) -> list[Finding]:
    """Return the findings. modules: those of the job. outcome: what replays of its passes show."""
    reduced = {number for summary in run.ranks for number in summary[BUCKET_REDUCTIONS].module.tolist()}
    used = [module for number, module in enumerate(modules) if number in reduced]
    return [*_in_16_bits(run, used, outcome, step_ns), *_as_bucket_view(used, outcome, step_ns)]


def _in_16_bits(run: Run, modules: Sequence[DdpModule], outcome: BucketWhatIf, step_ns: float) -> Iterator[Finding]:
    """Find gradients of 32 bits whose reductions are exposed, where no hook compresses them.

    On CPUs converting them and summing them in 16 bits takes longer than it saves, and is not in the replay.
    """
    halved, present_ns = outcome.in_16_bits, outcome.measured_ns
    whole = all(bucket.dtype == "float32" for module in modules for bucket in module.buckets)
    if run.device == "cpu" or halved is None or not whole or any(module.comm_hook != "none" for module in modules):
        return
    gain_ns = min(present_ns - halved.exposed_ns, halved.saving_ns)
    if gain_ns - halved.error_ns < LEAST_SHARE * step_ns:
        return
    hook = "bf16_compress_hook"
    yield Finding(
        severity="info",
        text=(
            f"DDP reduces gradients in 32 bits and leaves {present_ns / step_ns:.0%} of the step exposed; in 16 bits "
            f"it would be {halved.exposed_ns / step_ns:.0%}, without the time to convert them"
        ),
        cause="transfer",
        time_ns=present_ns,
        saving_ns=gain_ns,
        saving_error_ns=halved.error_ns,
        action=f"register {hook} as its communication hook (now none), if the gradients' precision allows",
        evidence={"comm_hook": hook, "present_comm_hook": "none", "exposed_ns": halved.exposed_ns},
    )


def _as_bucket_view(modules: Sequence[DdpModule], outcome: BucketWhatIf, step_ns: float) -> Iterator[Finding]:
    """Find copies of reduced gradients out of the buckets that a step waits for."""
    viewed = outcome.without_copies
    if viewed is None or any(module.gradient_as_bucket_view is not False for module in modules):
        return
    if viewed.saving_ns - viewed.error_ns < LEAST_SHARE * step_ns:
        return
    size_bytes = sum(bucket.size_bytes for module in modules for bucket in module.buckets)
    yield Finding(
        severity="info",
        text=f"DDP copies reduced gradients out of its buckets, for {viewed.saving_ns / step_ns:.0%} of the step",
        cause="transfer",
        time_ns=viewed.saving_ns,
        saving_ns=viewed.saving_ns,
        saving_error_ns=viewed.error_ns,
        action=f"set gradient_as_bucket_view=True (now False), which also saves {file_size(size_bytes)}",
        evidence={"gradient_as_bucket_view": True, "present_gradient_as_bucket_view": False, "bytes": size_bytes},
    )
