"""Which jobs are simulated: groups of jobs, each healthy and with every defect that suits it.

Seeds for tuning tracekit and seeds for its score are apart. Whoever mends an analysis looks at tuning seeds alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.gpu_jobs import CAUSES, Cause, Family, JobSpec, Missing, spec_of

Purpose = Literal["tuning", "scoring"]

TUNING_SEEDS = range(1_000)
SCORING_SEEDS = range(10_000, 20_000)


@dataclass(frozen=True)
class _Group:
    family: Family
    labels: Literal["none", "microbatch", "action"] | None = None
    dispatch: Literal["all_to_all", "kernels"] | None = None
    loses_records: bool = False


GROUPS: dict[str, _Group] = {
    "ddp": _Group("ddp"),
    "fsdp": _Group("fsdp"),
    "tensor": _Group("tensor"),
    "pipeline-action": _Group("pipeline", labels="action"),
    "pipeline-microbatch": _Group("pipeline", labels="microbatch"),
    "pipeline-messages": _Group("pipeline", labels="none"),
    "expert": _Group("expert", dispatch="all_to_all"),
    "expert-kernels": _Group("expert", dispatch="kernels"),
    "hybrid": _Group("hybrid"),
    "lost-kernels": _Group("ddp", loses_records=True),
    "lost-receives": _Group("pipeline", labels="microbatch", loses_records=True),
}
"""Families of jobs. Pipelines differ in the names that actions have in the trace, experts in the kernels that exchange
tokens. The jobs of the last two are healthy, but the profiler loses some of their records.
"""


@dataclass(frozen=True)
class Case:
    """One job to be scored. Its seed says all about it: of two neighbouring seeds the even one is healthy, and the odd
    ones take the defects of their family in turn.
    """

    group: str
    seed: int

    @property
    def cause(self) -> Cause | None:
        group = GROUPS[self.group]
        causes = () if group.loses_records else CAUSES[group.family]
        return causes[self.seed // 2 % len(causes)] if causes and self.seed % 2 else None

    @property
    def in_files(self) -> bool:
        """Return whether a full study reads this job from files: one in ten, healthy and defective ones."""
        return self.seed % 20 in {4, 15}

    def spec(self) -> JobSpec:
        group = GROUPS[self.group]
        spec = spec_of(group.family, self.seed, cause=self.cause)
        if group.labels is not None:
            spec = replace(spec, labels=group.labels)
        if group.labels == "microbatch" and spec.virtual_stages > 1:  # such schedules do not label so
            spec = replace(spec, schedule="1f1b", virtual_stages=1)
            if spec.defect is not None and spec.defect.stage is not None:
                spec = replace(spec, defect=replace(spec.defect, stage=spec.defect.stage % spec.pp))
        if group.dispatch is not None:
            spec = replace(spec, dispatch=group.dispatch)
        if group.loses_records:
            spec = replace(spec, batched_messages=False, missing=_missing(spec))
        return spec


def _missing(spec: JobSpec) -> Missing:
    """Return what is lost: receives of a pipeline; of other jobs all kernels or late ones, of one rank or of all."""
    rng = random.Random(f"missing {spec.seed}")
    one, every = (rng.randrange(spec.ranks),), tuple(range(spec.ranks))
    if spec.pp > 1:
        return Missing(ranks=one, receives=rng.uniform(0.02, 0.2))
    return (
        Missing(ranks=every, kernels_after=rng.uniform(0.3, 0.9)),
        Missing(ranks=one, kernels_after=rng.uniform(0.3, 0.9)),
        Missing(ranks=one, kernels_after=0.0),
        Missing(ranks=every, kernels_after=0.0),
        Missing(ranks=one, files=True),
    )[spec.seed % 5]


def cases(purpose: Purpose, groups: Sequence[str], count: int) -> list[Case]:
    """Return the first `count` cases of each group."""
    seeds = (TUNING_SEEDS if purpose == "tuning" else SCORING_SEEDS)[:count]
    return [Case(group, seed) for group in groups for seed in seeds]
