"""The fields of the JSON result that are no column of a table, and where the tables stand in it.

A path names objects from the top of the result: `run.mesh` is the object below `run`, and `pipeline.moves[]` each
element of a list. Tests compare this description with every result in `reports/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["OBJECTS", "ROWS", "TOP", "Key", "Type", "Value"]

Type = Literal[
    "int", "int?", "float", "float?", "str", "str?", "bool",
    "list of int", "list of int?", "list of str", "list of int or null", "list of int, or str",
    "object", "object?", "list of objects", "list of objects?", "map",
]  # fmt: skip
"""A `map` has names that depend on the run, and plain values."""


@dataclass(frozen=True)
class Value:
    """A field of an object."""

    name: str
    type: Type
    unit: str
    meaning: str


@dataclass(frozen=True)
class Key:
    """A key at the top of the result.

    Attributes:
        section: the section that it comes from; None for what every result has.
    """

    name: str
    section: str | None
    type: Type
    meaning: str


TOP: tuple[Key, ...] = (
    Key("schema_version", None, "int", "Version of this format."),
    Key("tracekit_version", None, "str", "Version of tracekit that analysed the run."),
    Key("run", None, "object", "What was analysed."),
    Key("notes", None, "list of objects", "What is missing from the input, was repaired or was left out."),
    Key("groups", None, "list of objects", "Process groups. Other tables refer to their ids."),
    Key("clock", None, "object", "How the ranks' clocks relate."),
    Key("joins", None, "list of objects", "How entries of torch's flight recorder were joined to events."),
    Key("point_to_point", None, "list of objects", "Messages between ranks."),
    Key("unavailable", None, "map", "Why a section has no result, by the name of the section."),
    Key("findings", None, "list of objects", "What is the case, what to do and what that saves; first things first."),
    Key("ranks", "breakdown", "list of objects", "Where each rank's time goes, over its complete steps."),
    Key("steps", "breakdown", "list of objects", "The same for each rank and step."),
    Key("idle_causes", "breakdown", "list of objects", "Why ranks idle."),
    Key("idle_locations", "breakdown", "list of objects", "What hosts were in while their ranks idled."),
    Key("stragglers", "stragglers", "object", "Who holds up the others."),
    Key("phases", "phases", "object", "The phases of steps."),
    Key("pauses", "pauses", "list of objects", "Checkpoints, evaluation and logging."),
    Key("communication", "overlap", "list of objects", "Communication by rank, group, kind and phase."),
    Key("collectives", "collectives", "list of objects", "Collectives matched over ranks, by group, kind and size."),
    Key("pipeline", "pipeline", "object?", "Bubbles of pipelines; null without a pipeline."),
    Key("bucket_map", "buckets", "list of objects", "What each bucket of DDP holds."),
    Key("buckets", "buckets", "list of objects", "When each reduction was ready, launched and done."),
    Key("buckets_by_index", "buckets", "list of objects", "The same, by bucket."),
    Key("bucket_micro_batches", "buckets", "int?", "Forward passes for each backward pass that reduces."),
    Key("bucket_whatif", "buckets", "list of objects", "What other limits of the size would expose."),
    Key("bucket_whatif_reason", "buckets", "str?", "Why that is empty, where it should not be."),
    Key("servers", "servers", "list of objects", "Ranks that serve others by messages."),
    Key("rpc", "rpc", "object", "Remote calls and parameter servers."),
    Key("dimensions", "dimensions", "list of objects", "Communication by rank and dimension of the mesh."),
    Key("dimensions_by_name", "dimensions", "list of objects", "The same over ranks."),
    Key("roofline", "roofline", "object?", "Floating-point work; null without a complete step."),
    Key("fsdp", "fsdp", "list of objects", "Gathers and reductions of FSDP and ZeRO, by unit."),
    Key("fsdp_prefetch", "fsdp", "list of objects", "What explicit prefetching would hide."),
    Key("fsdp_remark", "fsdp", "str?", "Why units are not known, where they are not."),
    Key("tensor", "tensor", "list of objects", "Communication within layers, by module."),
    Key("expert_load", "tensor", "list of objects", "What the experts of each rank receive and compute."),
    Key("expert_communication", "tensor", "list of objects", "Dispatch and combine."),
    Key("memory", "memory", "list of objects", "Parameters, gradients and optimizer state of each rank."),
    Key("configuration", "configuration", "list of objects?", "How the job is configured; null where it is not known."),
    Key(
        "critical_path", "critical_path", "list of objects", "What bounds the steps: the longest chain over all ranks."
    ),
    Key("diagnosis", "diagnosis", "object?", "The mean step divided among its causes, to the ns."),
    Key("whatif", "whatif", "object?", "What changes would save, by replays."),
    Key("kernels", "kernels", "list of objects", "Kernels by rank and name."),
    Key(
        "kernel_shapes",
        "kernels",
        "list of objects",
        "Kernels by operator, shapes, module and phase, with their rates.",
    ),
    Key("operators", "kernels", "list of objects", "Operators by rank and name."),
    Key("attempts", "attempts", "list of objects", "Attempts of a job that was restarted."),
)

ROWS: Mapping[str, str] = {
    **{key: key for key in ("ranks", "steps", "idle_causes", "idle_locations")},
    **{key: key for key in ("pauses", "communication", "collectives")},
    **{key: key for key in ("bucket_map", "buckets", "buckets_by_index", "bucket_whatif", "point_to_point")},
    **{key: key for key in ("dimensions", "dimensions_by_name", "fsdp", "fsdp_prefetch", "tensor", "expert_load")},
    **{key: key for key in ("expert_communication", "memory", "configuration", "critical_path", "attempts")},
    **{key: key for key in ("kernels", "kernel_shapes", "operators", "servers")},
    "clock.ranks": "clock",
    "diagnosis.causes": "causes",
    "phases.parts": "phases",
    "phases.ranks": "phase_facts",
    "pipeline.by_stage": "pipeline_stages",
    "pipeline.actions": "pipeline_actions",
    "roofline.by_rank": "roofline",
    "rpc.calls": "rpc",
    "rpc.servers": "rpc_servers",
    "rpc.service": "rpc_service",
    "rpc.trainers": "rpc_trainers",
    "rpc.unjoined": "rpc_unjoined",
    "stragglers.by_rank": "stragglers",
}
"""Names of tables by the path of their rows."""

_CAUSES = tuple(
    Value(f"{cause}_ns", "int", "ns", meaning)
    for cause, meaning in (
        ("warmup", "Before the first backward."),
        ("drain", "The rest of what the schedule costs."),
        ("imbalance", "Stages take unequally long; negative where that shortens a rank's bubble."),
        ("transfer", "Messages are on their way."),
        ("late_peer", "Single actions of others take longer."),
        ("other", "What remains."),
    )
)
_CHANGE = (
    Value("what", "str", "", "The change in words."),
    Value("saves_ns_per_step", "int", "ns", "By how much the mean step would be shorter."),
    Value("error_ns", "int", "ns", "The uncertainty of that."),
)

OBJECTS: Mapping[str, tuple[Value, ...]] = {
    "run": (
        Value("path", "str", "", "As it was typed."),
        Value("run_id", "str?", "", "Id of the run; null for a trace of another tool that is alone."),
        Value("attempt", "int", "", "Number of the attempt of a restarted job."),
        Value("world_size", "int?", "", "Ranks of the job; null when unknown."),
        Value("ranks", "list of int", "", "Ranks that were read."),
        Value("missing_ranks", "list of int", "", "Ranks without a usable trace."),
        Value("unmeasured_ranks", "list of objects", "", "Ranks whose times are not known, or cannot be compared."),
        Value("selected_ranks", "list of int?", "", "What `--ranks` selected; null: all."),
        Value("other_runs", "list of objects", "", "Other runs below the path."),
        Value("device", "str", "", "gpu, cpu or mixed."),
        Value("device_names", "list of str", "", "Names of the devices."),
        Value("hosts", "int?", "", "Number of hosts; null when unknown."),
        Value("strategies", "list of str", "", "How the job is parallel: ddp, fsdp2, tp, pp, ..."),
        Value("mesh", "object?", "", "The device mesh."),
        Value("communication_rules", "list of str", "", "Rules of the user for names of kernels."),
        Value("step_anchor", "str?", "", "What the user said begins a step; null: nothing."),
        Value("steps_from", "list of str", "", 'How the steps of ranks were found (docs/definitions.md, "Steps").'),
        Value("step_ns", "object?", "", "The length of the job's steps; null without a complete step."),
        Value("capture_overhead_ns", "int?", "ns", "What recording added to a step, at most; null when unknown."),
        Value("capture_overhead_ratio", "float?", "ratio", "The same, as a share of the step."),
    ),
    "run.unmeasured_ranks[]": (
        Value("rank", "int", "", "The rank."),
        Value("reason", "str", "", "Why it has no figures of time."),
    ),
    "run.other_runs[]": (
        Value("run_id", "str?", "", "Id of the run, for `--run`."),
        Value("attempt", "int", "", "Number of the attempt, for `--attempt`."),
        Value("ranks", "int", "", "How many ranks it has."),
        Value("start_ns", "int?", "ns", "When it began, since the Unix epoch."),
    ),
    "run.mesh": (
        Value("names", "list of str", "", "Names of the dimensions."),
        Value("shape", "list of int", "", "Their sizes."),
        Value("coordinates", "list of int or null", "", "The place of each of `run.ranks`; null outside of the mesh."),
    ),
    "run.step_ns": (
        Value("median", "int", "ns", "Of the steps that count."),
        Value("min", "int", "ns", "The shortest."),
        Value("max", "int", "ns", "The longest."),
        Value("count", "int", "", "How many there are."),
        Value("left_out", "list of objects", "", "First steps that were longer than the others."),
    ),
    "run.step_ns.left_out[]": (
        Value("step", "int", "", "Number of the step."),
        Value("step_ns", "int", "ns", "Its length, the longest over ranks."),
    ),
    "notes[]": (
        Value("id", "str", "", "One of the ids below; stable."),
        Value("severity", "str", "", "error, warning or info."),
        Value("rank", "int?", "", "The rank that it is about."),
        Value("file", "str?", "", "The file that it is about."),
        Value("text", "str", "", "What is missing, was repaired or was left out."),
        Value("events_dropped", "int", "", "Events that were left out."),
    ),
    "groups[]": (
        Value("id", "int", "", "Number of the group; other tables refer to it."),
        Value("desc", "str", "", "What the program calls it."),
        Value("parallelism", "str?", "", "dp, tp, pp, ep or cp; null when unknown."),
        Value("dimension", "str?", "", "Its dimension of the mesh, such as dp_shard."),
        Value("ranks", "list of int, or str", "", "Its ranks; `world` for all ranks of the job."),
    ),
    "clock": (
        Value("reference_rank", "int?", "", "The rank whose clock is the run's clock."),
        Value("ranks", "list of objects", "", "The clock of each rank."),
    ),
    "joins[]": (
        Value("rank", "int", "", "The rank."),
        Value("collectives", "int", "", "Entries of its flight recorder."),
        Value("joined", "int", "", "Of these, how many were joined to an event."),
        Value("unjoined", "list of objects", "", "The others."),
    ),
    "joins[].unjoined[]": (
        Value("kind", "str", "", "Kind of the collective."),
        Value("reason", "str", "", "Why it was not joined."),
        Value("count", "int", "", "How many there are."),
    ),
    "findings[]": (
        Value("id", "str", "", "Its entry in the catalogue, such as straggler: see Findings."),
        Value("tag", "str", "", "The field's term for it, such as STRAGGLER; `text` begins with it."),
        Value("severity", "str", "", "error, warning or info."),
        Value("text", "str", "", "What is the case."),
        Value("cause", "str?", "", "What the time is lost to: see Definitions, Diagnosis."),
        Value("rank", "int?", "", "The rank that it is about, if it is one."),
        Value("ranks", "list of int", "", "The ranks that it is about."),
        Value("step", "int?", "", "The step that it is about, if it is one."),
        Value("time_ns", "int?", "ns", "How much of the mean step it is about."),
        Value("saving_ns", "int?", "ns", "What the action would save a step, by a replay; null without a replay."),
        Value("saving_error_ns", "int?", "ns", "The uncertainty of that."),
        Value("certainty", "str?", "", "sure or likely."),
        Value("action", "str?", "", "What to do; null if there is nothing to do."),
        Value("evidence", "map", "", "The numbers behind the text; `section` has the tables that show it."),
    ),
    "stragglers": (
        Value("rank", "int?", "", "The rank that is named; null if none, several or a link is named."),
        Value("ranks", "list of int", "", "Ranks that are slow together."),
        Value("host", "str?", "", "Their machine, if these are all of its ranks."),
        Value(
            "cause",
            "str?",
            "",
            "Why: compute, more_work, host, data, link, checkpoint, ..., or what a late host does, such as allocator; "
            "null if none is named.",
        ),
        Value("caused_delay_ns", "int", "ns", "The delay beyond the others, the median of the steps."),
        Value("share_of_step", "float", "ratio", "That, as a share of the step."),
        Value("significance_ns", "int?", "ns", "The delay that would be sure."),
        Value("persistence", "float", "ratio", "The share of steps that show the delay."),
        Value("certainty", "str?", "", "sure or likely; null if none is named."),
        Value("text", "str", "", "The verdict in words."),
        Value("links", "list of objects", "", "Slow links."),
        Value("by_rank", "list of objects", "", "Delays and waits of each rank."),
    ),
    "stragglers.links[]": (
        Value("from", "int?", "", "The rank that sends, of a link between two."),
        Value("to", "int?", "", "The rank that receives."),
        Value("ranks", "list of int", "", "The ranks that it connects."),
        Value("slowdown", "float", "ratio", "How many times as long as usual it takes."),
        Value("compared_with", "str", "", "What it was compared with."),
    ),
    "phases": (
        Value("parts", "list of objects", "", "Time by rank, phase and part."),
        Value("ranks", "list of objects", "", "Facts about the phases of each rank."),
    ),
    "pipeline": (
        Value("schedule", "str", "", "Name of the schedule: see Definitions, Pipelines."),
        Value("schedule_inferred", "bool", "", "It was inferred from the order of actions."),
        Value("stages", "int", "", "Stages of a pipeline."),
        Value("virtual_stages", "int", "", "How many of them a rank has."),
        Value("microbatches", "int", "", "How many a step has."),
        Value("steps", "int", "", "Steps that were analysed."),
        Value("pipelines", "int", "", "Pipelines side by side (data parallel)."),
        Value(
            "bubble_ratio", "float?", "ratio", "Bubbles by the spans of all ranks, or by their steps if spans overlap."
        ),
        Value("ideal_bubble_ratio", "float?", "ratio", "The least share for this order of equally long actions."),
        Value("ideal_basis", "str?", "", "closed_form, or replay of the order that was run."),
        Value("bubble_to_ideal_ratio", "float?", "ratio", "Bubbles over the time in which ranks are busy."),
        Value("filled_ratio", "float?", "ratio", "Share of what spans leave in which ranks run other steps."),
        Value("causes", "object?", "", "Bubbles of all ranks by cause; they sum to the bubbles."),
        Value("replay_error", "float?", "ratio", "By how much a replay of all that was measured takes longer."),
        Value("uneven_stage", "object?", "", "The stage that takes longer than the others, if one does."),
        Value("moves", "list of objects", "", "Changes that surely save something, the largest saving first."),
        Value("by_stage", "list of objects", "", "Actions by stage and kind."),
        Value("by_rank", "list of objects", "", "Bubbles of each rank."),
        Value("actions", "list of objects", "", "Every action, with `--actions` only."),
    ),
    "pipeline.causes": _CAUSES,
    "pipeline.uneven_stage": (
        Value("stage", "int", "", "The stage."),
        Value("ranks", "list of int", "", "Its ranks."),
        Value("factor", "float", "ratio", "How many times as long as the other ranks' median stage it takes."),
        Value("work_ns", "int", "ns", "How long it takes for a microbatch."),
        Value("others_ns", "int", "ns", "The median of the other ranks' stages."),
        Value("fastest", "int", "", "The stage of the other ranks that takes the least."),
        Value("saves_ns_per_step", "int", "ns", "By how much the mean step would be shorter if all took as long."),
        Value("error_ns", "int", "ns", "The uncertainty of that."),
        Value("share", "float", "ratio", "The saving as a share of the time from the first to the last action."),
    ),
    "pipeline.moves[]": (
        *_CHANGE,
        Value("share", "float", "ratio", "The saving as a share of the time from the first to the last action."),
    ),
    "pipeline.by_rank[]": (
        Value("rank", "int", "", "The rank."),
        Value("stages", "list of int", "", "Its stages."),
        Value("busy_ns", "int", "ns", "In actions."),
        Value("bubble_ns", "int?", "ns", "In bubbles."),
        Value("bubble_ratio", "float?", "ratio", "Bubbles as a share of the span."),
        Value("causes", "object?", "", "Bubbles by cause; they sum to the bubble. Null where it is not known."),
    ),
    "pipeline.by_rank[].causes": _CAUSES,
    "rpc": (
        Value("calls", "list of objects", "", "Calls by function, with service and transit."),
        Value("unjoined", "list of objects", "", "Calls whose service was not found."),
        Value("trainers", "list of objects", "", "Rate and waits of each trainer."),
        Value("servers", "list of objects", "", "The load of each server."),
        Value("service", "list of objects", "", "What servers serve, by caller and function."),
    ),
    "roofline": (
        Value("by_rank", "list of objects", "", "Work of each rank."),
        Value("source", "str", "", "Where the number of operations comes from: shapes or given."),
        Value("peak_source", "str?", "", "Where the peak comes from: data sheet or given; null where no rank has one."),
        Value("unknown", "map", "", "Why a number is null, by its name."),
        Value("uncounted", "list of str", "", "Operators and kernels whose work could not be counted."),
    ),
    "diagnosis": (
        Value("step_ns", "int", "ns", "The mean step of the job."),
        Value("steps", "int", "", "Over how many steps."),
        Value("causes", "list of objects", "", "Its causes. They sum to `step_ns`."),
    ),
    "whatif": (
        Value("S", "float", "ratio", "The slowdown: the replayed step over the ideal step."),
        Value("M_W", "float?", "ratio", "Share of the slowness that the slowest 3 % of the ranks explain."),
        Value("M_S", "float?", "ratio", "Share that the last stage explains; null without stages."),
        Value("replay_error", "float", "ratio", "The replayed step over the measured one, less 1."),
        Value("steps", "int", "", "Steps that were replayed."),
        Value("measured_step_ns", "int", "ns", "The step as measured."),
        Value("replayed_step_ns", "int", "ns", "The step as replayed."),
        Value("ideal_step_ns", "int", "ns", "The step if all ranks and steps were alike."),
        Value("S_by_rank", "map", "", "S with the durations of one rank only; of many ranks, the slowest."),
        Value("S_by_type", "map", "", "The same for each type of operation."),
        Value("S_by_stage", "map", "", "The same for each stage."),
        Value("fix", "list of objects", "", "Changes that surely save something, the largest saving first."),
    ),
    "whatif.fix[]": (
        *_CHANGE,
        Value("remedy", "str", "", "What kind of change it is."),
        Value("rank", "int?", "", "The rank that it concerns, if it is one."),
        Value("ranks", "list of int", "", "The ranks that it concerns."),
        Value("share", "float", "ratio", "The saving as a share of the step."),
    ),
}
"""The fields of objects by path."""
