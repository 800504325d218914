"""Process groups of a job, as `init_process_group`, `init_device_mesh` and Megatron make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.gpu_jobs.spec import JobSpec


@dataclass(frozen=True)
class Group:
    """A process group.

    Attributes:
        name: of its dimension: `default_pg`, `dp`, `tp`, `pp`, `ep`, `edp` (ranks that have the same experts).
        uid: `Process Group Name` in a trace; the same on all members.
        described: `Process Group Description` in a trace, if it is not `mesh_` and the dimension, which
            `init_device_mesh` takes (torch/distributed/device_mesh.py).
    """

    name: str
    uid: str
    ranks: tuple[int, ...]
    described: str | None = None

    @property
    def description(self) -> str:
        if self.described is not None:
            return self.described
        return self.name if self.name == "default_pg" else f"mesh_{self.name}"


def groups_of(spec: JobSpec) -> dict[int, dict[str, Group]]:
    """Return the groups of each rank by dimension. Dimensions of one rank have no group, except `default_pg`.

    `pp_odd` and `pp_even` are of single sends: messages from odd and from even stages have communicators of their own,
    as in Megatron-LM (megatron/core/pipeline_parallel/p2p_communication.py, `_p2p_ops`). Otherwise a rank that sends
    and one that receives on the same pair of stages would wait for each other.
    """
    layouts: dict[str, set[tuple[int, ...]]] = {"default_pg": {tuple(range(spec.ranks))}}
    cube = [(pp, dp, tp) for pp in range(spec.pp) for dp in range(spec.dp) for tp in range(spec.tp)]
    if spec.pp > 1:
        layouts["pp"] = _lines(spec, ([(i, dp, tp) for i in range(spec.pp)] for _, dp, tp in cube))
    if spec.dp > 1 and spec.dp < spec.ranks:
        layouts["dp"] = _lines(spec, ([(pp, i, tp) for i in range(spec.dp)] for pp, _, tp in cube))
    if spec.ep > 1:
        layouts["ep"] = _lines(
            spec, ([(pp, dp // spec.ep * spec.ep + i, tp) for i in range(spec.ep)] for pp, dp, tp in cube)
        )
        if spec.ep < spec.dp:
            layouts["edp"] = _lines(
                spec, ([(pp, i, tp) for i in range(dp % spec.ep, spec.dp, spec.ep)] for pp, dp, tp in cube)
            )
    if spec.tp > 1:
        layouts["tp"] = _lines(spec, ([(pp, dp, i) for i in range(spec.tp)] for pp, dp, _ in cube))
    of_rank: dict[int, dict[str, Group]] = {rank: {} for rank in range(spec.ranks)}
    uid = 0
    for name, members in layouts.items():
        for ranks in sorted(members):
            group = Group(name, str(uid), ranks)
            uid += 1
            for rank in ranks:
                of_rank[rank][name] = group
    for own in of_rank.values():
        if "pp" in own:
            pp = own["pp"]
            own |= {f"pp_{side}": Group("pp", f"{pp.uid}{side[0]}", pp.ranks) for side in ("even", "odd")}
        own.setdefault("dp", own["default_pg"])
    return of_rank


def _lines(spec: JobSpec, lines: Iterable[list[tuple[int, int, int]]]) -> set[tuple[int, ...]]:
    return {tuple(spec.rank_at(*place) for place in line) for line in lines}
