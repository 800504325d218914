"""Run a job: the training loop of each rank, and the devices that they launch work on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from benchmarks.gpu_jobs.defects import defect_of
from benchmarks.gpu_jobs.engine import Device, Kernel, Latencies, Meeting, Transfer
from benchmarks.gpu_jobs.gpu import Synchronize
from benchmarks.gpu_jobs.groups import Group, groups_of
from benchmarks.gpu_jobs.rank import Rank
from benchmarks.gpu_jobs.spec import Family, JobSpec
from benchmarks.gpu_jobs.strategies import ddp, expert, fsdp, pipeline, tensor
from benchmarks.gpu_jobs.strategies.model import Loop

TrainingLoop = Callable[[Rank], Loop]

TRAINING_LOOPS: dict[Family, TrainingLoop] = {
    "ddp": ddp.train,
    "fsdp": fsdp.train,
    "tensor": tensor.train,
    "pipeline": pipeline.train,
    "expert": expert.train,
    "hybrid": pipeline.train,
}
_STARTS_WITHIN_US = 200.0  # ranks reach the first recorded step at different times


@dataclass(frozen=True)
class FinishedJob:
    """The state of a simulation at its end: what each host did, and when each kernel ran."""

    spec: JobSpec
    ranks: tuple[Rank, ...]
    kernels: tuple[Kernel, ...]
    transfers: tuple[Transfer, ...]
    groups: dict[int, dict[str, Group]]

    @cached_property
    def kernels_of(self) -> dict[int, list[Kernel]]:
        """Return the kernels of each rank in the order in which they were launched."""
        kernels: dict[int, list[Kernel]] = {rank.rank: [] for rank in self.ranks}
        for kernel in self.kernels:
            kernels[kernel.rank].append(kernel)
        return kernels

    @cached_property
    def duration_ns(self) -> int:
        return max([rank.now_ns for rank in self.ranks] + [kernel.end_ns for kernel in self.kernels])


def run_job(spec: JobSpec, train: TrainingLoop | None = None) -> FinishedJob:
    """Run the loop of each rank: the one of the job's family, or another one.

    Raises RuntimeError if ranks wait for each other, as mismatched calls would.
    """
    device = Device(Latencies() if spec.launch_us else Latencies(launch_ns=0, event_ns=0, gap_ns=0))
    meeting, groups = Meeting(), groups_of(spec)
    ranks = tuple(
        Rank(
            rank=rank,
            launch_us=spec.launch_us,
            spec=spec,
            groups=groups[rank],
            device=device,
            meeting=meeting,
            defect=defect_of(spec, rank),
        )
        for rank in range(spec.ranks)
    )
    starts = random.Random(f"starts {spec.seed}")
    for rank in ranks:
        rank.spend(starts.uniform(0, _STARTS_WITHIN_US) * (spec.launch_us > 0))
    train = TRAINING_LOOPS[spec.family] if train is None else train
    loops = {rank.rank: train(rank) for rank in ranks}
    waiting: dict[int, Synchronize] = {rank.rank: Synchronize(()) for rank in ranks}
    while waiting:
        ready = [number for number, wait in waiting.items() if all(kernel.end_ns >= 0 for kernel in wait.kernels)]
        if not ready:
            raise RuntimeError(f"ranks {sorted(waiting)} wait for each other")
        for number in ready:
            if (wait := waiting.pop(number)).kernels:
                ranks[number].resume(wait)
            following = next((wait for wait in loops[number] if wait is not None), None)
            if following is not None:
                waiting[number] = following
            device.run()
    if unfinished := [kernel for kernel in device.kernels if kernel.end_ns < 0]:
        raise RuntimeError(f"{len(unfinished)} kernels wait for each other, the first one is {unfinished[0].name}")
    return FinishedJob(spec, ranks, tuple(device.kernels), tuple(meeting.transfers), groups)
