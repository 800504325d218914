"""Operators whose arguments are kept, by the names that a trace gives them."""

from __future__ import annotations

ATTENTIONS = tuple(
    f"aten::_scaled_dot_product_{kind}"
    for kind in (
        "cudnn_attention",
        "efficient_attention",
        "flash_attention",
        "flash_attention_for_cpu",
        "fused_attention_overrideable",
    )
)
MULTIPLYING = frozenset(
    (
        *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm"),
        *("aten::convolution", "aten::convolution_backward"),
        *ATTENTIONS,
        *(f"{name}_backward" for name in ATTENTIONS),
    )
)
"""Operators whose number of floating-point operations follows from the shapes of their inputs.

None of them calls another one, except for wrappers that dispatch to an operator of the same name.
"""

COMMUNICATION_PREFIXES = (
    "c10d::",
    "gloo:",
    "nccl:",
    "_c10d_functional::",
    "record_param_comms",
    "mpi:",
    "ucc:",
    "xccl:",
    "torch::distributed::reducer::",  # copies gradients into a bucket of DDP
    "torch::autograd::AccumulateGrad",  # what a loop reduces by hand
)
"""Operators whose size of communication follows from the shapes of their inputs."""
