"""Which categories of events are public, and in which of them the names of events are."""

from __future__ import annotations

__all__ = ["ANNOTATIONS", "PUBLIC_CATEGORIES", "PYTHON_FUNCTION", "WITH_PUBLIC_NAMES"]

ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
PYTHON_FUNCTION = "python_function"
WITH_PUBLIC_NAMES = (
    *("cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_profiler_range", "hpu_op"),
    *("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver"),
    *("Operator", "Kernel", "Memcpy", "Memset", "Runtime"),  # of torch 1.8
)
"""The events of these are operators, kernels, copies, and calls of a runtime, whose names stay."""
PUBLIC_CATEGORIES = frozenset(
    {
        *("", PYTHON_FUNCTION, *ANNOTATIONS, *WITH_PUBLIC_NAMES),
        *("ac2g", "async_cpu_gpu", "async_gpu", "fwdbwd", "fwd_bwd", "cuda_sync"),
        *("Trace", "overhead", "cpu_instant_event", "cuda_event", "external_correlation", "collective_comm"),
        *("glow_runtime", "gpu_pm_counter", "mtia_ccp_events", "mtia_counters", "mtia_insight", "mtia_workloadd"),
    }
)
"""Kineto's categories."""
