"""Tables of what changes would save, and of where the slowness comes from."""

from tracekit.analysis.table import Column, Display, Table

__all__ = ["WHATIF", "WHATIF_REPLAY", "WHATIF_SLOWDOWNS"]

WHATIF = Table(
    "whatif",
    (
        Column("what", "str", "", "The change in words."),
        Column("remedy", "str", "", "What is changed: ranks, link, load, data, network, host ..."),
        Column("rank", "int?", "", "The rank to change, if it is one."),
        Column("ranks", "list[int]", "", "The ranks that it is about: those to change, or those that a link connects."),
        Column("saves_ns_per_step", "int", "ns", "How much shorter the mean step would be, by a replay."),
        Column("error_ns", "int", "ns", "What that may be off."),
        Column("share", "float", "ratio", "The saving as a share of the measured step."),
    ),
    Display(
        "What if (ms a step of {step_ns}; replay error {replay_error})",
        "change=what | saves=saves_ns_per_step | error=± {error_ns} | share",
        bars="saves=saves_ns_per_step",
    ),
)
WHATIF_SLOWDOWNS = Table(
    "whatif_slowdowns",
    (
        Column("of", "str", "", "rank, stage or type of operation."),
        Column("name", "str", "", "Which one."),
        Column("slowdown", "float", "ratio", "The step with it alone by the ideal one (S).", form="factor", digits=3),
    ),
    Display(
        "Slowdown S if only this is as measured and all else ideal",
        "what={of} {name} | S=slowdown",
        most=8,
        sort="slowdown",
    ),
)
WHATIF_REPLAY = Table(
    "whatif_replay",
    (
        Column("steps", "int", "", "Steps that were replayed."),
        Column("measured_step_ns", "int", "ns", "The mean step as measured."),
        Column("replayed_step_ns", "int", "ns", "The mean step as replayed."),
        Column("ideal_step_ns", "int", "ns", "The mean step if all ranks and steps were alike."),
        Column("replay_error", "float", "ratio", "The replayed step by the measured one, less 1."),
        Column("slowdown", "float", "ratio", "The replayed step by the ideal one (S).", form="factor", digits=3),
        Column("slowest_ranks_share", "float?", "ratio", "Of the slowness, what the slowest 3 % of ranks explain."),
        Column("last_stage_share", "float?", "ratio", "Of the slowness, what the last stage explains."),
    ),
)
