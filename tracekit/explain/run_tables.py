"""Tables that every report has: the run, its findings, notes and process groups."""

from tracekit.model.table import Column, Table

RUN = Table(
    "run",
    (
        Column("path", "str", "", "As it was typed."),
        Column("run_id", "str?", "", "Id of the run; null for traces that tracekit did not record."),
        Column("attempt", "int", "", "Number of the attempt of an elastic job."),
        Column("world_size", "int?", "", "Ranks of the job; null when unknown."),
        Column("ranks", "int", "", "Ranks that were read."),
        Column("missing_ranks", "list[int]", "", "Ranks that have no usable trace."),
        Column("device", "str", "", "gpu, cpu or mixed."),
        Column("device_names", "list[str]", "", "Names of the devices."),
        Column("hosts", "int?", "", "Number of hosts; null when unknown."),
        Column("strategies", "list[str]", "", "ddp, fsdp2, tp, pp ...: how the job is parallel."),
        Column("steps", "int", "", "Steps that all ranks completed."),
        Column("step_median_ns", "int?", "ns", "Their median length."),
        Column("step_min_ns", "int?", "ns", "The shortest."),
        Column("step_max_ns", "int?", "ns", "The longest."),
        Column("capture_overhead_ratio", "float?", "ratio", "What recording added to a step; null when unknown."),
        Column("tracekit_version", "str", "", "Version of tracekit that analysed the run."),
    ),
)
FINDINGS = Table(
    "findings",
    (
        Column("id", "str", "", "Its entry in the catalogue, such as straggler; docs/findings.md."),
        Column("tag", "str", "", "The field's term for it, such as STRAGGLER."),
        Column("severity", "str", "", "error, warning or info."),
        Column("text", "str", "", "What is the case."),
        Column("cause", "str?", "", "What the time is lost to; docs/definitions.md, Diagnosis."),
        Column("rank", "int?", "", "The rank that it is about, if it is one."),
        Column("ranks", "list[int]", "", "The ranks that it is about."),
        Column("step", "int?", "", "The step that it is about, if it is one."),
        Column("time_ns", "int?", "ns", "How much of the mean step it is about."),
        Column("saving_ns", "int?", "ns", "What the action would save a step, by a replay; null without a replay."),
        Column("saving_error_ns", "int?", "ns", "What that may be off."),
        Column("certainty", "str", "", "sure or likely."),
        Column("action", "str?", "", "What to do."),
        Column("evidence", "dict", "", "The numbers behind the text, by name."),
    ),
)
NOTES = Table(
    "notes",
    (
        Column("id", "str", "", "truncated, missing-rank, inferred, ...; stable."),
        Column("severity", "str", "", "error, warning or info."),
        Column("rank", "int?", "", "The rank that it is about."),
        Column("file", "str?", "", "The file that it is about."),
        Column("text", "str", "", "What is missing, was repaired or was left out."),
        Column("events_dropped", "int", "", "Events that were left out."),
    ),
)
GROUPS = Table(
    "groups",
    (
        Column("id", "int", "", "Other tables refer to the group by this number."),
        Column("description", "str", "", "What the program calls it."),
        Column("parallelism", "str?", "", "dp, tp, pp, ep or cp; null when unknown."),
        Column("dimension", "str?", "", "Its dimension in the mesh, such as dp_shard."),
        Column("ranks", "list[int]", "", "Its members; none when they are not known."),
    ),
)
