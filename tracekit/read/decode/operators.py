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

STREAMING = frozenset(
    (
        *("aten::add", "aten::add_", "aten::sub", "aten::mul", "aten::mul_", "aten::div", "aten::div_", "aten::copy_"),
        *("aten::relu", "aten::threshold_backward", "aten::gelu", "aten::gelu_backward", "aten::silu"),
        *("aten::silu_backward", "aten::_softmax", "aten::_softmax_backward_data", "aten::_log_softmax"),
        *("aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::_fused_rms_norm"),
        *("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::native_dropout"),
    )
)
"""Operators that read their inputs once and write a result as large as the largest of them."""

SIZED = MULTIPLYING | STREAMING
"""Operators whose inputs are kept."""

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
