"""When each rank was ready for each collective, send and receive, and when it ended there: what replays start from.

What ranks exchange in kernels that name no sizes is estimated from how long the experts of each rank compute.

Of transfers of data parallelism it is known which data has to be there before them, and what needs them. Gradients are
needed by the optimizer, not by the work behind the wait for them. Parameters that are gathered are known since the last
step; those that are gathered again in the backward pass could have been kept. Everything else is needed where it is
waited for, and not known before it was sent.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from tracekit.explain.ddp.tables import BUCKET_REDUCTIONS, EARLY_REDUCTIONS
from tracekit.explain.fsdp.tables import FSDP_REGATHERS
from tracekit.explain.model_parallel.expert_compute import ExpertCompute, expert_computes
from tracekit.explain.model_parallel.expert_load import LEAST_OVERLOAD, most_loaded
from tracekit.explain.whatif.tables import EXCHANGES
from tracekit.job.message_times import message_transfers, usual_transfers
from tracekit.model.columnar import Columnar
from tracekit.model.communication import KINDS, SYNCHRONISING, MatchedGroup
from tracekit.model.events import ABSENT, Bool, Float64, Int64
from tracekit.model.run import ClockModel, Run
from tracekit.model.summary import RankSummary
from tracekit.replay.operation_graph import Exchanges

_SEND, _RECV = KINDS.index("send"), KINDS.index("recv")
# Each rank and step may exchange another amount, as with tokens for experts.
_UNEVEN = tuple(KINDS.index(kind) for kind in ("all_to_all", "dispatch", "combine"))

OTHER, GRADIENTS, PARAMETERS, REGATHERED, ACCUMULATED = range(5)
_SHARDED = frozenset({"fsdp1", "fsdp2", "hsdp", "zero1", "zero2", "zero3"})
_DATA_PARALLEL = _SHARDED | {"ddp", "manual_dp"}
_ALL_REDUCE, _REDUCE_SCATTER, _ALL_GATHER = (KINDS.index(k) for k in ("all_reduce", "reduce_scatter", "all_gather"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Communication(Columnar):
    """n collectives, sends and receives of one rank, by the time when it was ready for them.

    Times are on the run's clock, unless they are called the rank's own.

    Attributes:
        ready_ns: int64 [n]. A CPU rank is ready when it issues. A GPU rank, whose host runs ahead, is ready for a
            collective when what it depends on has ended, and for a message when the kernel begins.
        end_ns: int64 [n]; of a message no later than its receive.
        own_launch_ns: int64 [n], on the rank's wall clock.
        own_end_ns: int64 [n], of the communication event, on the rank's wall clock.
        kind: int64 [n], index into `KINDS`.
        size_bytes: int64 [n], or -1.
        spins: bool [n], whether it is a kernel that runs from when the rank is ready until all have come and the
            transfer is through.
        batched: bool [n], whether the kernel carries other messages, too.
        purpose: `OTHER`, `GRADIENTS`, `PARAMETERS`, `REGATHERED` or `ACCUMULATED`, int64 [n].
        uneven: bool [n], whether other ranks and steps may have another size for the same.
        sent: int64 [n], of an exchange of tokens for experts what the rank gave, or -1.
        received: int64 [n], likewise what it got, or -1.
        estimated: bool [n], whether these are estimates, in ns that experts compute, not bytes.
        members: int64 [n], how many ranks end together.
        group: int64 [n], equal on all ranks for those that end together, or -1.
        network_link: int64 [n], index into `RunCommunication.network_links`.
        follows: int64 [n], the row that has to end on this rank before this one begins, or -1.
    """

    ready_ns: Int64
    end_ns: Int64
    own_launch_ns: Int64
    own_end_ns: Int64
    kind: Int64
    size_bytes: Int64
    purpose: Int64
    uneven: Bool
    spins: Bool
    batched: Bool
    sent: Int64
    received: Int64
    estimated: Bool
    members: Int64
    group: Int64
    network_link: Int64
    follows: Int64

    @property
    def comparable_size_bytes(self) -> Int64:
        """Return the sizes, int64 [n], by which ranks and steps can be told apart: -1 also where they are uneven."""
        return np.where(self.uneven, ABSENT, self.size_bytes)

    def exchanges(self, operations: Int64, tasks: Int64) -> Exchanges:
        """Return those that are exchanges of known amounts.

        operations: of each, int64 [n]. tasks: of the work behind each, int64 [n].
        """
        known = self.received != ABSENT
        return Exchanges(
            operation=operations[known],
            task=tasks[known],
            group=self.group[known],
            sent=self.sent[known],
            received=self.received[known],
            estimated=self.estimated[known],
        )


@dataclass(frozen=True, kw_only=True)
class RunCommunication:
    """The communication of a run.

    Attributes:
        of_rank: by rank.
        network_links: the ranks that each connects: the members of each process group, then the two ends of messages.
    """

    of_rank: dict[int, Communication]
    network_links: tuple[tuple[int, ...], ...]


def run_communication(run: Run) -> RunCommunication:
    """Return the communication of a run with matched collectives and messages."""
    parts: dict[int, list[Communication]] = defaultdict(list)
    summaries = {summary.rank: summary for summary in run.ranks}
    clocks = {clock.rank: clock for clock in run.clocks}
    amounts = estimated_amounts(run)
    number = 0
    serial: dict[int, bool] = {}
    for matched in run.collectives:
        members = (matched.row >= 0).sum(axis=0)
        uneven = _uneven(matched, summaries)
        one_by_one = True
        for member, rank in enumerate(matched.ranks.tolist()):
            collectives, present = summaries[rank].collectives, np.flatnonzero(matched.row[member] >= 0)
            rows = matched.row[member, present]
            order = np.argsort(collectives.start_ns[rows], kind="stable")
            start_ns, end_ns = collectives.start_ns[rows][order], collectives.end_ns[rows][order]
            one_by_one &= bool((start_ns[1:] >= end_ns[:-1]).all())
            part = _collectives(summaries[rank], clocks[rank], rows, matched.group)
            purpose = purposes_of(summaries[rank], run.groups[matched.group].parallelism, rows)
            part = replace(
                part, purpose=purpose, uneven=uneven[present], members=members[present], group=number + present
            )
            if matched.group in amounts:
                sent, received = (column[member, present] for column in amounts[matched.group])
                part = replace(part, sent=sent, received=received, estimated=received != ABSENT)
            parts[rank].append(part)
        serial[matched.group] = one_by_one
        number += matched.row.shape[1]
    network_links = [group.ranks for group in run.groups]
    ends = np.sort(np.stack((run.messages.source, run.messages.destination)).astype(np.int64), axis=0)
    pairs, pair = np.unique(ends, axis=1, return_inverse=True)
    for rank, messages in _messages(run, summaries, clocks, number, len(network_links) + pair.reshape(-1)).items():
        parts[rank].append(messages)
    network_links += [(int(first), int(second)) for first, second in pairs.T.tolist()]
    return RunCommunication(
        of_rank={rank: _in_order([Communication.empty(), *parts[rank]], serial) for rank in summaries},
        network_links=tuple(network_links),
    )


def _uneven(matched: MatchedGroup, summaries: dict[int, RankSummary]) -> Bool:
    """Return for which instances of a group the ranks may have different sizes, bool [m]."""
    largest = np.full(matched.row.shape[1], np.iinfo(np.int64).min)
    smallest = np.full(matched.row.shape[1], np.iinfo(np.int64).max)
    for rank, rows in zip(matched.ranks.tolist(), matched.row, strict=True):
        present = np.flatnonzero(rows >= 0)
        size_bytes = summaries[rank].collectives.size_bytes[rows[present]]
        largest[present] = np.maximum(largest[present], size_bytes)
        smallest[present] = np.minimum(smallest[present], size_bytes)
    return np.asarray(np.isin(matched.kind, _UNEVEN) | (largest != smallest))


def _collectives(summary: RankSummary, clock: ClockModel, rows: Int64, network_link: int) -> Communication:
    """Return rows of a rank's collectives. network_link: the number of their process group."""
    collectives = summary.collectives
    ready_ns = collectives.ready_ns if summary.device == "gpu" else collectives.launch_ns
    exchanges = summary[EXCHANGES]
    index = np.searchsorted(exchanges.launch_ns, collectives.launch_ns[rows])
    known = np.append(exchanges.launch_ns, ABSENT)[index] == collectives.launch_ns[rows]
    sent, received = (
        np.where(known, np.append(column, ABSENT)[index], ABSENT)
        for column in (exchanges.sent_bytes, exchanges.received_bytes)
    )
    return Communication.of_rows(
        len(rows),
        ready_ns=clock.to_run(ready_ns[rows]),
        end_ns=clock.to_run(collectives.end_ns[rows]),
        own_launch_ns=collectives.launch_ns[rows],
        own_end_ns=collectives.end_ns[rows],
        kind=collectives.kind[rows],
        size_bytes=collectives.size_bytes[rows],
        purpose=OTHER,
        spins=SYNCHRONISING[collectives.kind[rows]] & (summary.device == "gpu"),
        sent=sent,
        received=received,
        members=1,
        network_link=network_link,
    )


def _messages(
    run: Run, summaries: dict[int, RankSummary], clocks: dict[int, ClockModel], number: int, network_link: Int64
) -> dict[int, Communication]:
    """Return each rank's messages; a send and its receive get one group number, from `number` on.

    The span of a message ends when its rank looks for it, which may be long after the message was over. Therefore a
    send ends no later than its receive. A message that came while its receiver was busy took no longer than usual. A
    kernel of a GPU rank ends with its message.

    network_link: of each matched message, int64 [m].
    """
    ready_ns, end_ns, group, link_of = {}, {}, {}, {}
    for rank, summary in summaries.items():
        messages, clock = summary.messages, clocks[rank]
        ready_ns[rank] = clock.to_run(messages.start_ns if summary.device == "gpu" else messages.issue_ns)
        end_ns[rank] = np.where(messages.end_ns == ABSENT, ABSENT, clock.to_run(messages.end_ns))
        group[rank], link_of[rank] = np.full((2, len(messages)), ABSENT, dtype=np.int64)
    matched = run.messages
    columns = (matched.source, matched.destination, matched.send, matched.recv, network_link, _longest_ns(run))
    pairs = zip(range(number, number + len(matched)), *(column.tolist() for column in columns), strict=True)
    for pair, source, destination, send, recv, edge, longest_ns in pairs:
        if end_ns[destination][recv] == ABSENT or end_ns[source][send] == ABSENT:
            continue
        group[source][send] = group[destination][recv] = pair
        link_of[source][send] = link_of[destination][recv] = edge
        if summaries[source].device == summaries[destination].device == "gpu":
            continue
        over_ns = min(int(end_ns[source][send]), int(end_ns[destination][recv]))
        if longest_ns != ABSENT:
            begun_ns = max(int(ready_ns[source][send]), int(ready_ns[destination][recv]))
            over_ns = max(min(over_ns, begun_ns + longest_ns), begun_ns)
            end_ns[destination][recv] = over_ns
        end_ns[source][send] = over_ns
    result = {}
    for rank, summary in summaries.items():
        messages, known = summary.messages, np.flatnonzero(end_ns[rank] != ABSENT)
        result[rank] = Communication.of_rows(
            len(known),
            ready_ns=ready_ns[rank][known],
            end_ns=end_ns[rank][known],
            own_launch_ns=messages.issue_ns[known],
            own_end_ns=messages.end_ns[known],
            kind=np.where(messages.is_send[known], _SEND, _RECV),
            size_bytes=messages.size_bytes[known],
            purpose=OTHER,
            spins=summary.device == "gpu",
            batched=_batched(messages.end_ns[known]),
            members=2,
            group=group[rank][known],
            network_link=link_of[rank][known],
        )
    return result


def _longest_ns(run: Run) -> Int64:
    """Return how long messages took at most that came to a CPU rank while it was busy, int64 [m]; -1 for others."""
    if all(summary.device == "gpu" for summary in run.ranks):
        return np.full(len(run.messages), ABSENT)
    times = message_transfers(run)
    usual_ns = usual_transfers(run, times)
    longest_ns = np.where(usual_ns == ABSENT, times.took_ns, np.minimum(times.took_ns, usual_ns))
    on_gpu = np.isin(run.messages.destination, [summary.rank for summary in run.ranks if summary.device == "gpu"])
    return np.where(times.is_exact | on_gpu, ABSENT, longest_ns)


def _batched(end_ns: Int64) -> Bool:
    """Return which messages share their kernel with others, bool [m]: those that end at the same time."""
    _, number, counts = np.unique(end_ns, return_inverse=True, return_counts=True)
    return np.asarray(counts[number] > 1)


def _in_order(parts: list[Communication], serial: dict[int, bool]) -> Communication:
    """Return the rows in order of time. serial: whether the collectives of a process group run one after another."""
    rows = Communication.concatenate(parts)
    rows = rows.rows(np.lexsort((rows.group, rows.ready_ns)))
    follows = np.full(len(rows), ABSENT, dtype=np.int64)
    for network_link in np.unique(rows.network_link).tolist():
        if serial.get(network_link, False):
            here = np.flatnonzero(rows.network_link == network_link)
            here = here[np.argsort(rows.own_end_ns[here], kind="stable")]
            follows[here[1:]] = here[:-1]
    return replace(rows, end_ns=np.maximum(rows.end_ns, rows.ready_ns), follows=follows)


def estimated_amounts(run: Run) -> dict[int, tuple[Int64, Int64]]:
    """Return what each of k ranks sends and receives in each of m instances of a group, int64 [k, m], by group.

    They are ns that experts compute (`ExpertCompute.load_ns`), or -1 where not known. There are groups only in which a
    rank's experts clearly have more load than the others'.

    A rank dispatches its own tokens, as many as the others, and receives the load of its experts. On the way back it is
    the reverse.
    """
    matched = {group.group: group for group in run.collectives}
    return {
        compute.group: _amounts(compute, matched[compute.group])
        for compute in expert_computes(run)
        if not compute.has_sizes and _is_uneven(compute)
    }


def _is_uneven(compute: ExpertCompute) -> bool:
    most = most_loaded(compute.by_rank_and_step(compute.load_ns), LEAST_OVERLOAD)
    return most is not None and most.significant


def _amounts(compute: ExpertCompute, matched: MatchedGroup) -> tuple[Int64, Int64]:
    usual_ns = _usual_load_ns(compute)[:, compute.pair]
    load_ns = np.rint(usual_ns).astype(np.int64)
    mean_ns = np.rint(usual_ns.mean(axis=0)).astype(np.int64)
    sent, received = np.full((2, *matched.row.shape), ABSENT, dtype=np.int64)
    sent[:, compute.exchanges] = np.where(compute.takes_back, load_ns, mean_ns)
    received[:, compute.exchanges] = np.where(compute.takes_back, mean_ns, load_ns)
    return sent, received


def _usual_load_ns(compute: ExpertCompute) -> Float64:
    """Return the load of each rank, float64 [k, p]: the mean over steps of the pairs at the same position in each.

    A layer with a hot expert has it in all steps. The largest load of a single step would be that of the longest kernel
    by chance.
    """
    _, counts = np.unique(compute.step, return_counts=True)
    if len(set(counts.tolist())) > 1:
        return np.broadcast_to(compute.load_ns.mean(axis=1, keepdims=True), compute.load_ns.shape)
    by_step = compute.load_ns.reshape(len(compute.load_ns), len(counts), -1)
    return np.broadcast_to(by_step.mean(axis=1, keepdims=True), by_step.shape).reshape(compute.load_ns.shape)


def purposes_of(summary: RankSummary, parallelism: str | None, rows: Int64) -> Int64:
    """Return what some collectives of a process group are for, int64 [k]. rows: of the rank's collectives, int64 [k].

    DDP says which reductions are of its buckets: others, such as those of SyncBatchNorm, are needed at once.
    """
    kind, launch_ns = summary.collectives.kind[rows], summary.collectives.launch_ns[rows]
    of_bucket = np.isin(launch_ns, summary[BUCKET_REDUCTIONS].launch_ns)
    alone = _DATA_PARALLEL.issuperset(summary.strategies)  # then groups need no names to be told apart
    in_dp = parallelism == "dp" or (parallelism is None and alone)
    sharded = in_dp and not _SHARDED.isdisjoint(summary.strategies)
    reduces = of_bucket | (sharded or (in_dp and "manual_dp" in summary.strategies))
    gradients = ((kind == _ALL_REDUCE) & reduces) | ((kind == _REDUCE_SCATTER) & sharded)
    again = np.isin(launch_ns, summary[FSDP_REGATHERS].launch_ns) & (kind == _ALL_GATHER) & sharded
    early = np.isin(launch_ns, summary[EARLY_REDUCTIONS].launch_ns)
    chosen = [early, gradients, again, (kind == _ALL_GATHER) & sharded]
    return np.select(chosen, [ACCUMULATED, GRADIENTS, REGATHERED, PARAMETERS], OTHER).astype(np.int64)
