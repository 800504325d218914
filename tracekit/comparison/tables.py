"""The tables of a comparison of runs."""

from tracekit.model.table import Column, Display, Table

_TIMES = (
    Column("baseline_ns", "int", "ns", "Mean of a step of the baseline; of several runs the mean."),
    Column("candidate_ns", "int", "ns", "Mean of a step of the candidate."),
    Column("change_ns", "int", "ns", "candidate_ns - baseline_ns.", form="change"),
)
CAUSE_CHANGES = Table(
    "cause_changes",
    (
        Column("cause", "str", "", "As in a report (causes), or uneven_steps: its typical length less its mean."),
        Column("ranks", "list[int]", "", "The ranks that are the cause; empty if it is on no rank in particular."),
        *_TIMES[:2],
        Column("change_ns", "int", "ns", "candidate_ns - baseline_ns; rows sum to that of the step.", form="change"),
    ),
    Display("What a step consists of (ms)", "cause=label | baseline_ns | candidate_ns | change_ns"),
)
EXPLORED_CHANGES = Table(
    "explored_changes",
    (
        Column("dimension", "str", "", "What the step is divided by: phase, rank, group, operator or kernel."),
        Column("name", "str", "", "The phase, the rank, the communication and its group, the operator or the kernel."),
        *_TIMES,
        Column("p_value", "float?", "ratio", "How likely noise makes such a change; null: too few steps to say."),
        Column(
            "adjusted_p_value", "float?", "ratio", "That among all rows (Benjamini-Hochberg).", form="number", digits=3
        ),
        Column("stands_out", "bool", "", "Whether adjusted_p_value is at most 0.05. Exploratory: no verdict."),
    ),
    Display(
        "What stands out (ms; exploratory: a hint where to look, no verdict)",
        "by=dimension | name | baseline_ns | candidate_ns | change_ns | adjusted p-value=adjusted_p_value",
        most=20,
    ),
)
RUN_DIFFERENCES = Table(
    "run_differences",
    (
        Column("what", "str", "", "Device, host, recorded steps, or a setting as component.name."),
        Column("baseline", "str?", "", "Its values in the baselines; null: not recorded.", null="not recorded"),
        Column("candidate", "str?", "", "Its value in the candidate; null: not recorded.", null="not recorded"),
    ),
    Display("What else differs between the runs", "what | baseline | candidate"),
)
COMPARISON_TABLES = (CAUSE_CHANGES, EXPLORED_CHANGES, RUN_DIFFERENCES)
