"""Names of FSDP1's spans, and names of modules without those of wrappers."""

from __future__ import annotations

import pytest

from tracekit.model.names.modules import clean_module_name, names_together
from tracekit.model.spans import FsdpSpan, fsdp_span, parse_fsdp_span


@pytest.mark.parametrize("module", ["", "blocks.0", "blocks.1.mlp", "blocks.0, blocks.1"])
def test_a_span_parses_to_what_it_was_built_from(module: str) -> None:
    name = fsdp_span("prefetch", "backward", module)
    assert parse_fsdp_span(name) == FsdpSpan(action="prefetch", phase="backward", module=module)


@pytest.mark.parametrize("name", ["", "tracekit.wait", "FSDP::all_gather (x)", "tracekit.fsdp:unshard sideways x"])
def test_other_names_are_no_span_of_fsdp(name: str) -> None:
    assert parse_fsdp_span(name) is None


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("", ""),
        ("_orig_mod", ""),
        ("blocks.0._orig_mod.linear", "blocks.0.linear"),
        ("_fsdp_wrapped_module.blocks.1._checkpoint_wrapped_module.mlp", "blocks.1.mlp"),
        ("norm, head._orig_mod", "norm, head"),
        ("my_orig_mod.x", "my_orig_mod.x"),
    ],
)
def test_module_names_are_without_wrappers(name: str, clean: str) -> None:
    assert clean_module_name(name) == clean


@pytest.mark.parametrize(
    ("names", "listed", "more"),
    [
        ("", [""], 0),
        ("blocks.0", ["blocks.0"], 0),
        ("blocks.0, head", ["blocks.0", "head"], 0),
        ("blocks.0, <root> and 12 more", ["blocks.0", "<root>"], 12),
    ],
)
def test_names_of_a_group_of_modules(names: str, listed: list[str], more: int) -> None:
    assert names_together(names) == (listed, more)
