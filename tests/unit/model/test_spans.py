"""Every label parses to what it was built from, has the prefix, and is never parsed as another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.model.spans import (
    BACKWARD_SPAN,
    CHECKPOINT_ACTIONS,
    CHECKPOINT_FUNCTIONS,
    DATA_SPAN,
    EVALUATION_SPAN,
    GARBAGE_COLLECTION_SPAN,
    LABEL_PREFIX,
    NO_GRAD_SPAN,
    OPTIMIZER_ACTIONS,
    RECOMPUTE_SPAN,
    WAIT_SPAN,
    DdpHookSpan,
    FsdpSpan,
    PipelineSpan,
    checkpoint_span,
    ddp_hook_span,
    engine_span,
    forward_span,
    fsdp_span,
    logging_span,
    module_span,
    optimizer_span,
    parse_checkpoint_span,
    parse_ddp_hook_span,
    parse_forward_span,
    parse_fsdp_span,
    parse_module_span,
    parse_optimizer_span,
    parse_pipeline_span,
    pipeline_span,
)

PARSERS = (
    parse_checkpoint_span,
    parse_ddp_hook_span,
    parse_forward_span,
    parse_fsdp_span,
    parse_module_span,
    parse_optimizer_span,
    parse_pipeline_span,
)
MODULE = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}(\.[A-Za-z0-9_]{1,8}){0,4}", fullmatch=True)
MODULES = st.one_of(st.just(""), st.lists(MODULE, min_size=1, max_size=3).map(", ".join))
COUNT = st.integers(0, 999_999)


@st.composite
def labels(draw: st.DrawFn) -> tuple[str, Callable[[str], Any], Any]:
    """A label, its parser, and what it was built from."""
    match draw(st.sampled_from(["fsdp", "optimizer", "checkpoint", "pipeline", "forward", "module", "hook"])):
        case "fsdp":
            fsdp = FsdpSpan(
                action=draw(st.sampled_from(["unshard", "prefetch", "use", "reduce"])),
                phase=draw(st.sampled_from(["forward", "backward"])),
                module=draw(MODULES),
            )
            return fsdp_span(fsdp.action, fsdp.phase, fsdp.module), parse_fsdp_span, fsdp
        case "optimizer":
            action = draw(st.sampled_from(OPTIMIZER_ACTIONS))
            return optimizer_span(action), parse_optimizer_span, action
        case "checkpoint":
            call = draw(st.sampled_from(CHECKPOINT_ACTIONS)), draw(st.sampled_from(CHECKPOINT_FUNCTIONS))
            return checkpoint_span(*call), parse_checkpoint_span, call
        case "pipeline":
            kind = draw(st.sampled_from(["F", "B", "I", "W"]))
            pp = PipelineSpan(kind=kind, stage=draw(COUNT), microbatch=draw(COUNT), loss=draw(st.booleans()))
            return pipeline_span(pp.kind, pp.stage, pp.microbatch, loss=pp.loss), parse_pipeline_span, pp
        case "forward":
            number = draw(COUNT)
            return forward_span(number), parse_forward_span, number
        case "module":
            name = draw(st.one_of(st.just(""), MODULE))
            return module_span(name), parse_module_span, name
        case _:
            hook = DdpHookSpan(
                module=draw(MODULE), bucket=draw(COUNT), size_bytes=draw(COUNT), is_last=draw(st.booleans())
            )
            label = ddp_hook_span(hook.module, hook.bucket, hook.size_bytes, is_last=hook.is_last)
            return label, parse_ddp_hook_span, hook


@given(label=labels())
def test_a_label_parses_to_what_it_was_built_from_and_to_nothing_else(
    label: tuple[str, Callable[[str], Any], Any],
) -> None:
    name, parse, built_from = label
    assert parse(name) == built_from
    assert [parser(name) for parser in PARSERS if parser is not parse] == [None] * (len(PARSERS) - 1)


@given(label=labels())
def test_a_label_has_the_prefix_and_survives_any_writer(label: tuple[str, Callable[[str], Any], Any]) -> None:
    assert label[0].startswith(LABEL_PREFIX)
    assert re.fullmatch(r"[A-Za-z0-9_.:=|#<> -]+", label[0])


@given(text=st.text(max_size=20), label=labels(), parser=st.sampled_from(PARSERS))
def test_no_text_makes_a_parser_raise(text: str, label: tuple[str, Callable[[str], Any], Any], parser: Any) -> None:
    parser(text)
    parser(label[0] + text)
    parser(text + label[0])
    if text and not text.startswith(LABEL_PREFIX):
        assert parser(text + label[0]) is None


FIXED = [BACKWARD_SPAN, DATA_SPAN, RECOMPUTE_SPAN, WAIT_SPAN, engine_span("forward"), engine_span("backward")]
FIXED += [EVALUATION_SPAN, NO_GRAD_SPAN, GARBAGE_COLLECTION_SPAN, logging_span("logging.Logger.handle")]


@pytest.mark.parametrize("name", FIXED)
def test_a_label_without_parts_parses_as_no_other(name: str) -> None:
    assert name.startswith(LABEL_PREFIX)
    assert [parser(name) for parser in PARSERS] == [None] * len(PARSERS)
    assert FIXED.count(name) == 1


def test_a_save_in_an_older_recording_has_no_function() -> None:
    assert parse_checkpoint_span("tracekit.checkpoint") == ("save", "torch.save")
    assert parse_checkpoint_span("tracekit.checkpoint:save my.save") is None
