"""Names of the spans of remote calls."""

from __future__ import annotations

import pytest

from tracekit.model.spans import RpcSpan, parse_rpc_span, rpc_call_span, rpc_service_span


@pytest.mark.parametrize("function", ["pull", "ParameterServer.pull", "main.<locals>.pull"])
def test_both_sides_of_a_call_have_the_same_id(function: str) -> None:
    call, served = rpc_call_span(3, 17, "ps:0", function), rpc_service_span(3, 17, function)

    assert parse_rpc_span(call) == RpcSpan(side="call", caller=3, number=17, callee="ps:0", function=function)
    assert parse_rpc_span(served) == RpcSpan(side="serve", caller=3, number=17, callee=None, function=function)


@pytest.mark.parametrize(
    "name", ["", "tracekit.wait", "tracekit.rpc:call.1.2 pull", "tracekit.rpc:serve.1.2 ->ps pull"]
)
def test_other_names_are_no_span_of_a_remote_call(name: str) -> None:
    assert parse_rpc_span(name) is None
