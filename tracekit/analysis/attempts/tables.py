"""The table of the attempts of a job."""

from tracekit.analysis.table import Column, Display, Table


def _lost(name: str, meaning: str) -> Column:
    """Return a column of lost time, which is long: people read it in seconds."""
    return Column(name, "int?", "ns", meaning, form="s")


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
        _lost("lost_ns", "Time lost at the restart before this attempt: the sum of what follows."),
        _lost("detection_ns", "From the failed rank's last sign of life to the end of the others."),
        _lost("rendezvous_ns", "From there until all processes had started; with null before it, both."),
        _lost("startup_ns", "From there until the process group was complete; null: in the next."),
        _lost("reload_ns", "From there to the first step: model, checkpoint, data."),
        Column("repeated_steps", "int?", "", "Steps that the attempt before had made as well."),
        _lost("repeated_ns", "Their time in this attempt, by the median step."),
    ),
    Display(
        "Time lost at restarts (s)",
        "before attempt=attempt | lost_ns | detection_ns | rendezvous_ns | start-up=startup_ns | reload_ns "
        "| repeated steps=repeated_ns | number=repeated_steps",
        bars="detection_ns | rendezvous_ns | startup_ns | reload_ns | repeated_ns",
    ),
)
