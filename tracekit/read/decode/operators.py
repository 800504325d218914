"""Operators that do the floating-point work of a model, as a trace names them."""

from __future__ import annotations

__all__ = ["ATTENTIONS", "MULTIPLYING"]

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
"""Of these the number of operations follows from the shapes of their inputs. None of them is made of others, but for
wrappers that dispatch to an operator of the same name."""
