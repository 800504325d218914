"""The table of the attempts of a job."""

from tracekit.analysis.table import Column, Table

ATTEMPTS = Table(
    "attempts",
    (
        Column("attempt", "int", "", "Number of the attempt, as `--attempt` takes it."),
        Column("world_size", "int?", "", "Ranks of the job in this attempt."),
        Column("recorded", "bool", "", "Whether it has a recorded window, which can be analysed."),
        Column("start_ns", "int?", "ns", "Wall clock: when the last of its processes started."),
        Column("joined_ns", "int?", "ns", "Wall clock: when its process group was complete."),
        Column("first_call_ns", "int?", "ns", "Wall clock: when the last rank began its first step."),
        Column("last_sign_ns", "int?", "ns", "Wall clock: the last sign of life of any of its ranks."),
        Column("first_step", "int?", "", "The job's number of its first step."),
        Column("last_step", "int?", "", "The job's number of the last step that it is known to have begun."),
        Column("step_ns", "int?", "ns", "Median step, by the beginnings of its last steps."),
        Column("ending", "str?", "", "finished, killed, error or membership (other ranks joined); null: not known."),
        Column("ended_ranks", "list[int]", "", "The ranks that were killed or raised."),
        Column("error", "str?", "", "Type of the error that ended it."),
        Column("lost_ns", "int?", "ns", "Time lost at the restart before this attempt: the sum of what follows."),
        Column("detection_ns", "int?", "ns", "From the failed rank's last sign of life to the end of the others."),
        Column("rendezvous_ns", "int?", "ns", "From there until all processes had started; with null before it, both."),
        Column("startup_ns", "int?", "ns", "From there until the process group was complete; null: in the next."),
        Column("reload_ns", "int?", "ns", "From there to the first step: model, checkpoint, data."),
        Column("repeated_steps", "int?", "", "Steps that the attempt before had made as well."),
        Column("repeated_ns", "int?", "ns", "Their time in this attempt, by the median step."),
    ),
)
