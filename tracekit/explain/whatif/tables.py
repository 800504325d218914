"""Which columns the tables of what changes would save have, and what is kept of each rank for replays.

A rank keeps what its host launched, when it does not train, and how much it exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import table_part
from tracekit.model.table import Column, Display, Table
from tracekit.replay.operation_graph import NO_TRAINING

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
        "Slowdown if only this is as measured and all else ideal",
        "what={of} {name} | slowdown",
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

CUTS = ("begin", "launch", "wait", "synchronise", *NO_TRAINING, "resume", "step", "end", "mark")
"""Where a host's time is cut.

begin: the recording begins. launch: of communication. wait: the next kernel waits for communication. synchronise: the
host waits for its device. data, checkpoint, evaluation, logging: the host begins to do this instead of training.
resume: it goes on with the training. step: a step begins. end: the last step ends. mark: a synchronisation later waits
for the kernels before, or an action of a pipeline begins or ends.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class LaunchIntervals(Columnar):
    """n intervals of the time of a GPU rank's host, in order, and what the kernels that it launched in them took.

    Intervals that begin with a "wait" share the host's time with the interval before them: they are parts of one host
    interval. A host interval launches kernels, and its last kernel ends at the latest of two times:

        end of the kernel before + sum of `device_ns`        the device had work all the time
        begin of the host interval + `limit_host_ns`
                                  + `limit_device_ns`        the device had to wait for a launch

    Times are on the rank's wall clock; -1 means that there is none.

    Attributes:
        what: index into `CUTS`, what it begins with, int32 [n].
        step: number of the step in which the host is, int64 [n].
        begin_ns: int64 [n].
        until_ns: when the host goes on: after a synchronisation its end, else `begin_ns`, int64 [n].
        device_ns: how long its kernels take on the device, with the time between kernels that were launched in time,
            int64 [n]; -1 without kernels.
        device_end_ns: when the last kernel that was launched so far ended, int64 [n].
        limit_host_ns: time from the begin of the host interval to the start of the kernel whose launch decides when the
            last one can end, if the device is free; in the last row of each host interval, int64 [n].
        limit_device_ns: time from that start to the end of the last kernel, int64 [n].
        awaited_kernel_ns: of a synchronisation the end of the kernel that it waited for, int64 [n].
        awaited_communication_ns: of a wait, a launch or a synchronisation the end of the communication that has to end
            first, int64 [n].
        communication_end_ns: of a launch the end of the communication, int64 [n].
        needs_kernels: of a launch, 1 if the communication waits for the kernels that were launched before it, else 0,
            int32 [n].
    """

    what: Int32
    step: Int64
    begin_ns: Int64
    until_ns: Int64
    device_ns: Int64
    device_end_ns: Int64
    limit_host_ns: Int64
    limit_device_ns: Int64
    awaited_kernel_ns: Int64
    awaited_communication_ns: Int64
    communication_end_ns: Int64
    needs_kernels: Int32


@dataclass(frozen=True, kw_only=True, eq=False)
class Interruptions(Columnar):
    """n disjoint times in which a CPU rank does not train, in order, on its wall clock.

    Attributes:
        what: index into `NO_TRAINING`, what it does instead, int32 [n].
        begin_ns: int64 [n].
        end_ns: int64 [n].
    """

    what: Int32
    begin_ns: Int64
    end_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Exchanges(Columnar):
    """n all-to-alls for experts of one rank whose amounts are known, in order of launch.

    Attributes:
        launch_ns: on the rank's wall clock, int64 [n].
        sent_bytes: int64 [n].
        received_bytes: int64 [n].
    """

    launch_ns: Int64
    sent_bytes: Int64
    received_bytes: Int64


LAUNCH_INTERVALS = table_part("launch_intervals", LaunchIntervals)
INTERRUPTIONS = table_part("interruptions", Interruptions)
EXCHANGES = table_part("exchanges", Exchanges)
