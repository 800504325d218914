"""Findings on the steps as a whole: how long, how even, what they are spent on, and what cost them a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.hosts import IDLE_CAUSES
from tracekit.findings.thresholds import (
    COPY_SHARE,
    LONGER_COMPUTE,
    MOSTLY_COMPUTE,
    MOSTLY_FOR_ONE,
    NOTABLE_SHARE,
    OVERHEAD_RATIO,
    RESTARTS_SHARE,
    SLOW_RATE,
    UNCERTAIN_MEAN,
)
from tracekit.model.run import ranks_text
from tracekit.model.texts import milliseconds

_NAMED_DIFFERENCES = 3
_RECORD_WAITS = "record the steps in which ranks synchronize, and more of them: tracekit.probe(steps=10)"
_PARTS = {
    "late": ("delay takes", "No rank is seen to wait for it"),
    "longer_steps": ("time beyond the steps of other ranks takes", "Why is not known"),
    "exposed_comm": ("communication and waiting take", "For whom ranks wait is not known"),
    "idle": ("idle time takes", "What it costs the job is not known"),
    "exposed_copy": ("copies take", "What they cost the job is not known"),
}
"""What is said of a part of the step, and what is not known of it."""
_RECORDING_OPTIONS = {
    "with_stack": "stack=False",
    "profile_memory": "memory=False",
    "with_flops": "flops=False",
    "record_shapes": "shapes=False",
}
"""The profiler's options, the most expensive first, and the probe's names. FLOPs are counted from the shapes."""
_AGAINST_RESTARTS = {
    "detection": "lower the time-out of the process group and --monitor-interval of torchrun",
    "rendezvous": "lower last_call_timeout and the keep-alive of --rdzv-conf",
    "start-up": "start processes quicker: import from a local disk, form the process group lazily",
    "reload": "see what each rank loads before its first step: the checkpoint, the model, data",
    "repeated steps": "save checkpoints more often, asynchronously",
}


@entry(
    "nothing-notable",
    "Compute-bound",
    "breakdown",
    example={"compute_share": 0.97, "compute_ns": 58_200_000, "step_ns": 60_000_000},
)
def nothing_notable(compute_share: float, compute_ns: float, step_ns: float) -> Sentence:
    """No analysis has a finding, and none is missed: each rank computes for most of its step, and nothing else is
    notable.
    """
    times = f"{milliseconds(compute_ns, 1)} of {milliseconds(step_ns, 1)} ms"
    return f"nothing stands out. Compute takes {compute_share:.0%} of the mean step ({times})", None


@entry(
    "unexplained-part",
    "Unexplained time",
    "breakdown",
    NOTABLE_SHARE,
    MOSTLY_COMPUTE,
    example={"part": "exposed_comm", "share": 0.61, "time_ns": 412_000_000, "of_ranks": (0, 2)},
)
def unexplained_part(
    part: str, share: float, time_ns: float, of_ranks: Sequence[int], late_by: str | None = None, device: str = "gpu"
) -> Sentence:
    """No analysis has a finding, and that is no all-clear: a part of the step is notable, and not explained.

    part: of the breakdown, or a cause of the diagnosis. "late": ranks are late, and nobody is seen to wait for them.
    "longer_steps": the steps of a rank are all longer than those of another. late_by: why ranks are late.
    """
    takes, unknown = _PARTS.get(part, (f"{part} takes", "No replay shows what would save it"))
    if part in IDLE_CAUSES:
        takes = "Python outside of operators takes" if device == "cpu" else f"idle time ({part}) takes"
    by, whose = f" by {late_by}" if late_by else "", f" of {ranks_text(of_ranks)}" if of_ranks else ""
    text = f"{takes.replace('_', ' ')} {share:.0%} of the step{whose} ({milliseconds(time_ns, 1)} ms{by}). {unknown}"
    return text, _RECORD_WAITS if part == "late" else None


@entry("exposed-copies", "Exposed copies", "breakdown", COPY_SHARE, example={"copy_share": 0.31})
def exposed_copies(copy_share: float) -> Sentence:
    """Neither compute nor communication hides the copies of the device."""
    return (
        f"{copy_share:.0%} of the step is copies that overlap neither compute nor communication",
        "copy from pinned memory (pin_memory=True, non_blocking=True) on a stream of its own, or copy less",
    )


@entry("no-complete-step", "No complete step", "breakdown", example={})
def no_complete_step() -> Sentence:
    """The recording has no step from begin to end, so there is no time to divide."""
    return "the recording holds no step from begin to end. Where time goes is not known", "record more steps"


@entry(
    "ranks-without-times",
    "No times",
    "breakdown",
    example={"ranks": [1], "reason": "it was recorded without CUDA activity"},
)
def ranks_without_times(ranks: Sequence[int], reason: str) -> Sentence:
    """No analysis has a finding, and of some ranks no time is known: nobody may conclude that all is well."""
    return f"none is known of {ranks_text(ranks)}: {reason}", None


@entry(
    "noisy-steps",
    "Noise",
    "breakdown",
    UNCERTAIN_MEAN,
    example={"min_ns": 396_000_000, "max_ns": 1_339_000_000, "steps": 3, "rank": None},
)
def noisy_steps(min_ns: int, max_ns: int, steps: int, rank: int | None) -> Sentence:
    """Steps differ so much that their mean, and what it consists of, is not known.

    Other findings of such a run are uncertain, but for ranks that are slower than chance makes them.
    """
    fold = f"{max_ns / min_ns:.1f}-fold " if min_ns > 0 else ""
    whose = "differ" if rank is None else f"of most ranks differ, those of rank {rank}"
    result = "That is too noisy to judge" if rank is None else "Their mean rates are uncertain"
    more = f"record more steps, tracekit.probe(steps={max(10, 2 * steps)})"
    return (
        f"steps {whose} {fold}({milliseconds(min_ns, 1)} to {milliseconds(max_ns, 1)} ms). {result}",
        f"{more}, while nothing else runs on the machine",
    )


@entry(
    "slow-rate",
    "Slow rank",
    "whatif",
    SLOW_RATE,
    example={
        "slow": (3,),
        "peers": 3,
        "steps_per_s": (8.1, 8.1),
        "peers_steps_per_s": 12.2,
        "longer_parts_ns": {"compute": 39_000_000, "data": 0, "rpc": 0, "host": 1_000_000},
        "job_steps_per_s": 44.7,
        "even_job_steps_per_s": 48.8,
        "of_trainers": False,
    },
)
def slow_rate(
    slow: Sequence[int],
    peers: int,
    steps_per_s: Sequence[float] | float,
    peers_steps_per_s: float,
    longer_parts_ns: Mapping[str, int],
    job_steps_per_s: float,
    even_job_steps_per_s: float,
    of_trainers: bool,
    worker: str | None = None,
) -> Sentence:
    """Ranks of which none is seen to wait take fewer steps a second than their peers.

    of_trainers: which a server answers each at its own time. worker: what the job calls a single one.
    """
    one, who = len(slow) == 1, ranks_text(slow)
    if one and worker is not None:
        who = f"{worker} ({who})"
    rates = [steps_per_s] if isinstance(steps_per_s, float | int) else steps_per_s
    own = f"{rates[0]:.3g}" + (f" to {rates[-1]:.3g}" if rates[-1] > rates[0] else "")
    its, they = ("its", "it") if one else ("their", "they")
    text = f"{who} make{'s' * one} {own} steps a second, {its} peer{'s' * (peers > 1)} {peers_steps_per_s:.3g}"
    cause = max(longer_parts_ns, key=lambda part: longer_parts_ns[part])
    where = f"{milliseconds(longer_parts_ns[cause], 1)} ms longer"
    action = {
        "compute": f"compare what {they} run{'s' * one} with {its} peers: a step computes {where}",
        "data": f"load {its} data ahead: a step loads {where}",
        "rpc": f"compare the way to the servers: a step waits for remote calls {where}",
        "servers": f"compare the way to the servers: a step waits for their messages {where}",
        "host": f"look what {they} do{'es' * one} outside of operators: a step spends {where} there",
    }[cause]
    if of_trainers:
        gain = f"The job would make {even_job_steps_per_s:.3g} steps a second, not {job_steps_per_s:.3g}"
        return f"{text}. Nobody waits for {'it' if one else 'them'}", f"{action}. {gain}"
    advice = "Record steps in which ranks synchronize"
    return f"{text}. No rank is seen to wait for another", f"{action}. {advice}"


@entry(
    "waited-for-trainer",
    "Straggler",
    "servers",
    NOTABLE_SHARE,
    MOSTLY_FOR_ONE,
    example={"others_wait_ns": 31_000_000, "callee": "ps0", "worker": "trainer2", "rank": 3, "longer_ns": 29_000_000},
)
def waited_for_trainer(
    others_wait_ns: int, callee: str, worker: str | None, rank: int, longer_ns: int | None
) -> Sentence:
    """A server has to wait for one rank that trains, and the others wait for the server meanwhile.

    worker: what the job calls the rank. longer_ns: by how much longer it computes, if that explains the waiting.
    """
    longer = "" if longer_ns is None else f". It computes {milliseconds(longer_ns, 1)} ms longer"
    who = f"rank {rank}" if worker is None else f"{worker} (rank {rank})"
    text = f"the others wait {milliseconds(others_wait_ns, 1)} ms a step on {callee} for {who}{longer}"
    return text, f"compare what it runs with its peers, or let {callee} answer before all have come"


@entry(
    "longer-compute",
    "Straggler",
    "breakdown",
    LONGER_COMPUTE,
    example={"ranks": (2,), "compute_ns": 19_900_000, "others_compute_ns": 16_200_000, "others_idle_ns": 5_300_000},
)
def longer_compute(
    ranks: Sequence[int], compute_ns: float, others_compute_ns: float, others_idle_ns: float
) -> Sentence:
    """Ranks on GPUs whose communication is not recorded: some compute longer, and the others may wait for them."""
    one = len(ranks) == 1
    times = f"{milliseconds(compute_ns, 1)} against {milliseconds(others_compute_ns, 1)} ms"
    text = (
        f"{ranks_text(ranks)} compute{'s' * one} {compute_ns / others_compute_ns - 1:.0%} longer than the others "
        f"({times} a step). The others idle {milliseconds(others_idle_ns, 1)} ms"
    )
    return text, f"compare what {ranks_text(ranks)} run{'s' * one}, and on which GPU, with the others"


@entry(
    "recording-overhead",
    "Profiler overhead",
    "breakdown",
    OVERHEAD_RATIO,
    example={"ratio": 0.31, "rank": 2, "options": ["with_stack", "record_shapes"]},
)
def recording_overhead(ratio: float, rank: int, options: Sequence[str]) -> Sentence:
    """The profiler itself took a notable part of the recorded steps, so short operations look longer than they are."""
    advice = [name for option, name in _RECORDING_OPTIONS.items() if option in options]
    text = f"recording cost {ratio:.0%} of the step on rank {rank}. Times of short operations are inflated"
    return text, f"record with tracekit.probe({', '.join(advice)})" if advice else None


@entry("float32-products", "No tensor cores", "roofline", NOTABLE_SHARE, example={})
def float32_products() -> Sentence:
    """Matrix products run in float32 on a GPU whose tensor cores would be faster, even at the device's peak."""
    return (
        "matrix products run in float32 without tensor cores",
        "call torch.set_float32_matmul_precision('high') for TF32, or autocast to bfloat16",
    )


@entry(
    "restarts",
    "Restarts",
    "attempts",
    RESTARTS_SHARE,
    example={
        "lost_ns": 41_200_000_000,
        "job_ns": 120_000_000_000,
        "part": "reload",
        "part_ns": 30_100_000_000,
        "repeated_steps": 4,
    },
)
def restarts(lost_ns: int, job_ns: int, part: str, part_ns: int, repeated_steps: int | None) -> Sentence:
    """Restarts of the job took much of its time so far: to notice, to meet again, to start, to load, to repeat."""
    text = f"they took {lost_ns / 1e9:.1f} s, {lost_ns / job_ns:.0%} of the job's time so far"
    text = f"{text}. {part.capitalize()} takes {part_ns / 1e9:.1f} s of it"
    more = "" if repeated_steps is not None else ". Repeated steps are unknown: pass first_step= to the probe"
    return f"{text}{more}", _AGAINST_RESTARTS[part.removeprefix("detection and ")]


@entry(
    "different-settings",
    "Different settings",
    "configuration",
    example={
        "differences": [
            {
                "component": "ddp",
                "module": None,
                "setting": "bucket_cap_mb",
                "values": [{"value": 25, "ranks": [0, 1, 2]}, {"value": 1, "ranks": [3]}],
            }
        ]
    },
)
def different_settings(differences: Sequence[Mapping[str, Any]]) -> Sentence:
    """Ranks that do the same work have different settings of torch, DDP, FSDP or the data loader."""
    texts = list(dict.fromkeys(map(_difference_text, differences)))
    more = f"; {len(texts) - _NAMED_DIFFERENCES} more" if len(texts) > _NAMED_DIFFERENCES else ""
    text = f"ranks are not configured alike. {'; '.join(texts[:_NAMED_DIFFERENCES])}{more}"
    return text, "give all ranks the same settings"


def _difference_text(difference: Mapping[str, Any]) -> str:
    held = [(each["value"], each["ranks"]) for each in difference["values"]]
    if difference["setting"] is None:
        has = next(ranks for value, ranks in held if value)
        return f"only {ranks_text(has)} {'have' if len(has) > 1 else 'has'} {difference['component']}"
    others = ", ".join(f"{ranks_text(ranks)}: {setting_text(value)}" for value, ranks in held[1:])
    return f"{difference['component']} {difference['setting']} is {setting_text(held[0][0])} ({others})"


def setting_text(value: object) -> str:
    """Return a value of a setting as a program writes it, but for quotes: `25`, `True`, `bfloat16`."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
