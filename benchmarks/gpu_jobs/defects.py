"""What a defect does to a rank: how much longer its kernels, its loader, its host and its transfers take."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gpu_jobs.groups import Group
from benchmarks.gpu_jobs.spec import JobSpec


@dataclass(frozen=True)
class RankDefect:
    """What is wrong with one rank.

    Attributes:
        speed: its compute kernels take as many times longer.
        uneven_stage: the stage whose layers take `stage_times` as long.
        loading_us: additional time of each batch.
        additional_us: of additional kernels in each layer's forward pass; backward has twice as much.
        hold_up_us: of the host after each layer's forward pass, once its device has ended; after backward, twice.
        slow_group: members of a group whose collectives take longer; `collective_times` as long.
        hot_expert: the rank whose experts get `additional_tokens`, a share of an even load. All ranks know it.
        slow_peer: messages to and from this rank take `message_us` longer.
    """

    speed: float = 1.0
    uneven_stage: int | None = None
    stage_times: float = 1.0
    loading_us: float = 0.0
    additional_us: float = 0.0
    hold_up_us: float = 0.0
    slow_group: tuple[int, ...] = ()
    collective_times: float = 1.0
    hot_expert: int | None = None
    additional_tokens: float = 0.0
    slow_peer: int | None = None
    message_us: float = 0.0

    def times_of(self, stage: int) -> float:
        return self.stage_times if stage == self.uneven_stage else 1.0

    def collective_factor(self, group: Group) -> float:
        return self.collective_times if group.ranks == self.slow_group else 1.0

    def edge_us(self, peer: int) -> float:
        return self.message_us if peer == self.slow_peer else 0.0


def defect_of(spec: JobSpec, rank: int) -> RankDefect:
    """Return what the defect of a job does to one of its ranks."""
    defect = spec.defect
    if defect is None or (rank not in defect.ranks and defect.cause != "hot_expert"):
        return RankDefect()
    forwards = 3 * spec.layers_of_rank * spec.microbatches
    match defect.cause:
        case "compute" | "slow_host":
            return RankDefect(speed=1 + defect.delay_us / (spec.compute_us + spec.optimizer_us))
        case "uneven_stage":
            stage_us = spec.compute_us / spec.virtual_stages
            return RankDefect(uneven_stage=defect.stage, stage_times=1 + defect.delay_us / stage_us)
        case "more_work":
            return RankDefect(additional_us=defect.delay_us / forwards)
        case "host":
            return RankDefect(hold_up_us=defect.delay_us / forwards)
        case "data":
            return RankDefect(loading_us=defect.delay_us)
        case "link":
            transfers_us = 2 * spec.layers_of_rank * spec.microbatches * spec.exchange_us
            return RankDefect(slow_group=defect.ranks, collective_times=1 + defect.delay_us / transfers_us)
        case "slow_edge":
            (peer,) = (other for other in defect.ranks if other != rank)
            return RankDefect(slow_peer=peer, message_us=defect.delay_us / (2 * spec.microbatches))
        case "hot_expert":
            (hot,) = defect.ranks
            return RankDefect(hot_expert=hot, additional_tokens=defect.delay_us / (0.5 * spec.compute_us))
