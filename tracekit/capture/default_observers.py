"""Which observers look at a training program: the lists to which a new one is added."""

from __future__ import annotations

from tracekit.capture.observers import Observer, ProcessRecorder
from tracekit.capture.rpc import serving

__all__ = ["PROCESS_RECORDERS", "default_observers"]

PROCESS_RECORDERS: tuple[ProcessRecorder, ...] = (serving,)
"""What records a process from its first probe on, whether or not it has steps."""


def default_observers() -> list[Observer]:
    """Return new observers for one window, in the order in which they attach; they detach in reverse.

    They are imported here: a job that never records pays for none.
    """
    from tracekit.capture.observers.communication_purposes import PurposeObserver
    from tracekit.capture.observers.compiled import CompileObserver
    from tracekit.capture.observers.forwards import ForwardObserver
    from tracekit.capture.observers.gradient_modes import GradientModeObserver
    from tracekit.capture.observers.memory import MemoryObserver
    from tracekit.capture.observers.parallelism.ddp import DdpObserver
    from tracekit.capture.observers.parallelism.deepspeed import DeepSpeedObserver
    from tracekit.capture.observers.parallelism.fsdp import Fsdp1Observer, Fsdp2Observer
    from tracekit.capture.observers.parallelism.group_parallelism import DataParallelObserver, GroupParallelismObserver
    from tracekit.capture.observers.parallelism.pipeline import PipelineObserver
    from tracekit.capture.observers.parallelism.tensor_parallel import TensorParallelObserver
    from tracekit.capture.observers.pauses import PausesObserver
    from tracekit.capture.observers.phases import PhasesObserver
    from tracekit.capture.observers.point_to_point import PointToPointObserver
    from tracekit.capture.rpc.observer import RpcObserver

    return [
        PausesObserver(),
        PointToPointObserver(),
        DdpObserver(),
        DataParallelObserver(),
        Fsdp1Observer(),
        Fsdp2Observer(),
        DeepSpeedObserver(),
        TensorParallelObserver(),
        PhasesObserver(),
        MemoryObserver(),
        CompileObserver(),
        PipelineObserver(),
        ForwardObserver(),
        GradientModeObserver(),
        RpcObserver(),
        PurposeObserver(),  # after the observers that set the parallelism of their groups
        GroupParallelismObserver(),  # last: it reads what all others have set
    ]
