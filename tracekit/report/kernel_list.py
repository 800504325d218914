"""What each kernel of a run counts as, and which rule says so: every function that ran on the ranks' devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tracekit.errors import InputError
from tracekit.loading.options import SummaryOptions
from tracekit.loading.workers import LOST, Progress, map_ranks
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, EventTable
from tracekit.model.names.pseudonyms import Pseudonyms
from tracekit.model.run import Run
from tracekit.model.summary import merge_sums
from tracekit.rank.communication_rules import COMPUTE, CommunicationRule, rule_finder
from tracekit.rank.kernel_names import function_of_kernel
from tracekit.rank.lanes import Lanes, build_lanes
from tracekit.read.decode.decoder import decode
from tracekit.read.files.storage import parse_path

COPY = "copy"
_BY_STREAM = "(its stream)"


@dataclass(frozen=True, kw_only=True)
class KernelUse:
    """All kernels of one function that count as the same, in everything that the ranks recorded.

    Attributes:
        function: without template arguments and parameters; of a copy, its name.
        kind: what they count as: COMPUTE, COPY, or a kind of communication (`KINDS`).
        rule: what decided that: the project that a rule is for, a user's regular expression, or "(its stream)"; ""
            where no rule is for them.
        total_ns: the sum of their durations.
    """

    function: str
    kind: str
    rule: str
    count: int
    total_ns: int


def list_kernels(
    run: Run,
    *,
    options: SummaryOptions | None = None,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> list[KernelUse]:
    """Return what ran on the devices of the run's ranks, the longest first. Their files are read again.

    `options` are those that the run was loaded with, of which the rules count; `jobs` and `progress` are as
    for `load`. Raises InputError when a file of the run has become unreadable or its worker dies.
    """
    rules = (options or SummaryOptions()).rules
    calls = [(summary.files, rules, run.pseudonyms) for summary in run.ranks]
    by_rank = map_ranks(_kernels_of_files, calls, jobs=jobs, progress=progress)
    uses: list[KernelUse] = []
    for summary, rank_uses in zip(run.ranks, by_rank, strict=True):
        if rank_uses is LOST:
            raise InputError(f"rank {summary.rank}: the worker that read it died, twice", hint="try --jobs 1")
        uses += rank_uses
    return _merged(uses)


def _kernels_of_files(
    files: Iterable[str], rules: tuple[CommunicationRule, ...], pseudonyms: Pseudonyms | None
) -> list[KernelUse]:
    """Return what ran on the devices of one rank. Runs in a worker."""
    uses: list[KernelUse] = []
    for file in files:
        trace = decode(parse_path(file), namer=pseudonyms)
        uses += _kernels_of(trace.events, build_lanes(trace, rules), rules)
    return _merged(uses)


def _kernels_of(events: EventTable, lanes: Lanes, rules: tuple[CommunicationRule, ...]) -> list[KernelUse]:
    """Return what ran on the device of one recording, the longest first; nothing for a rank that computes on a CPU."""
    if lanes.device == "cpu":
        return []
    device, communication = lanes.device_events, lanes.communication_events
    kind = np.full(len(events), ABSENT, dtype=np.int64)
    kind[communication.row] = communication.kind
    columns = np.stack((events.name[device.row], kind[device.row], device.is_kernel))
    different, which, count = np.unique(columns, axis=1, return_inverse=True, return_counts=True)
    total_ns = np.zeros(len(count), dtype=np.int64)
    np.add.at(total_ns, which.reshape(-1), events.duration_ns[device.row])
    rule_for = rule_finder(rules)
    uses = []
    for (name, number, is_kernel), times, sum_ns in zip(
        different.T.tolist(), count.tolist(), total_ns.tolist(), strict=True
    ):
        text = events.strings[name]
        rule = rule_for(text) if is_kernel else None
        named = KINDS[number] if number != ABSENT else COMPUTE if is_kernel else COPY
        decided_by = "" if rule is None else rule.source or rule.pattern
        uses.append(
            KernelUse(
                function=function_of_kernel(text) if is_kernel else text,
                kind=named,
                rule=_BY_STREAM if named == "unclassified" else decided_by,
                count=times,
                total_ns=sum_ns,
            )
        )
    return _merged(uses)


def _merged(uses: Iterable[KernelUse]) -> list[KernelUse]:
    merged = merge_sums(uses, key=("function", "kind", "rule"), amounts=("count", "total_ns"))
    return sorted(merged, key=lambda use: (-use.total_ns, use.function))
