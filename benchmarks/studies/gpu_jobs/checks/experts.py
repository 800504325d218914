"""Checks of expert parallelism: how many tokens each rank's experts receive."""

from __future__ import annotations

import statistics
from collections import defaultdict

from benchmarks.gpu_jobs.strategies.expert import tokens_of
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, abstained, compare_each
from tracekit.model.table import rows_of

_OF_LOAD = 0.03  # of the load of the others: by so much an estimate may be off, as kernels differ by chance


def load_of_experts(evidence: Evidence) -> Outcome | None:
    """What all-to-alls bring to each rank's experts, as a share of what its group receives.

    Kernels without arguments of c10d do not tell it: there it is estimated.
    """
    if evidence.spec.ep < 2 or evidence.spec.dispatch != "all_to_all":
        return None
    received: dict[int, int] = defaultdict(int)
    for transfer in evidence.job.finished.transfers:
        if (
            transfer.kind == "all_to_all" and transfer.sequence % 2 == 0
        ):  # the odd ones bring tokens, or gradients, back
            for rank, kernel in transfer.kernels.items():
                received[rank] += kernel.facts["comms"]["Out msg nelems"]
    groups = {op.members for op in evidence.truth.operations if op.kind == "all_to_all"}
    expected = {rank: received[rank] / sum(received[r] for r in members) for members in groups for rank in members}
    tensor = evidence.report.tensor
    rows = [] if tensor is None else rows_of(tensor.experts, "ranks")
    if not rows:
        return abstained({rank: round(share, 3) for rank, share in expected.items()})
    of_rank: dict[int, float] = defaultdict(float)
    for row in rows:
        of_rank[row["rank"]] += row["received_bytes"]
    seen = {rank: of_rank[rank] / sum(of_rank[r] for r in members) for members in groups for rank in members}
    return compare_each(seen, expected, within=0.001)


def estimated_load_of_experts(evidence: Evidence) -> Outcome | None:
    """The load of each rank's experts, by the mean of the others of its group, where kernels tell no sizes."""
    spec = evidence.spec
    if spec.ep < 2 or spec.dispatch != "kernels":
        return None
    ranks, steps = evidence.job.finished.ranks, {step.step for step in evidence.truth.steps}
    load = {
        rank.rank: sum(tokens_of(rank, step, layer).load for step in steps for layer in range(spec.layers))
        for rank in ranks
    }
    expected = {}
    for rank in ranks:
        others = [load[member] for member in rank.groups["ep"].ranks if member != rank.rank]
        expected[rank.rank] = load[rank.rank] / statistics.fmean(others)
    tensor = evidence.report.tensor
    rows = [] if tensor is None else rows_of(tensor.experts, "ranks")
    seen = {row["rank"]: row["ratio"] for row in rows}
    return compare_each(seen, expected, within=_OF_LOAD) if seen else abstained(expected)


def time_of_exchanges(evidence: Evidence) -> Outcome | None:
    """How much time a step each rank spends in the exchanges of tokens, whatever kernels do them: the median."""
    if evidence.spec.ep < 2:
        return None
    kinds = {"all_to_all", "dispatch", "combine"}
    expected: dict[int, float] = defaultdict(float)
    for op in evidence.truth.operations:
        if op.kind in kinds:
            for rank, start_ns, end_ns in zip(op.members, op.start_ns, op.end_ns, strict=True):
                expected[rank] += end_ns - start_ns
    seen: dict[int, float] = defaultdict(float)
    for row in rows_of(evidence.report.overlap, "communication"):
        if row["kind"] in kinds:
            seen[row["rank"]] += row["total_ns"]
    if not seen:
        return abstained(f"{statistics.median(expected.values()):,.0f}", "no exchanges of tokens")
    within = {rank: 3_000 * evidence.spec.steps + evidence.clock_change_ns(rank) for rank in expected}
    return compare_each(seen, expected, within=within, share=0.01)


CHECKS: tuple[Check, ...] = (load_of_experts, estimated_load_of_experts, time_of_exchanges)
