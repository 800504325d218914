"""Which observers look at a training program: the lists to which a new one is added."""

from __future__ import annotations

from tracekit.capture.observers import Observer, ProcessRecorder
from tracekit.capture.rpc import serving

PROCESS_RECORDERS: tuple[ProcessRecorder, ...] = (serving,)
"""What records a process from its first probe on, whether or not it has steps."""


def default_observers() -> list[Observer]:
    """Return new observers for one window, in the order in which they attach; they detach in reverse.

    They are imported here: a job that never records pays for none.
    """
    from tracekit.capture.observers.communication_purposes import PurposeObserver
    from tracekit.capture.observers.compiled import CompileObserver
    from tracekit.capture.observers.ddp import DdpObserver
    from tracekit.capture.observers.deepspeed import DeepSpeedObserver
    from tracekit.capture.observers.fsdp import Fsdp1Observer, Fsdp2Observer
    from tracekit.capture.observers.memory import MemoryObserver
    from tracekit.capture.observers.pauses import PausesObserver
    from tracekit.capture.observers.phases import ForwardObserver, GradientModeObserver, PhasesObserver
    from tracekit.capture.observers.pipeline import PipelineObserver
    from tracekit.capture.observers.point_to_point import PointToPointObserver
    from tracekit.capture.observers.tensor_parallel import (
        DataParallelObserver,
        GroupParallelismObserver,
        TensorParallelObserver,
    )
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
