"""The mark on a remote call, which does not affect peers without tracekit."""

from __future__ import annotations

import pickle
from collections import namedtuple
from functools import partial
from typing import Any

import pytest

from tracekit.capture.rpc.services import add_mark, function_name, read_mark

Call = namedtuple("Call", ["func", "args", "kwargs"])


@pytest.mark.parametrize(("caller", "number"), [(0, 0), (7, 123_456), (2**32 - 1, 2**40)])
def test_a_mark_contains_caller_and_number(caller: int, number: int) -> None:
    assert read_mark(add_mark(b"payload", caller, number)) == (caller, number)


def test_a_marked_call_unpickles_as_without_a_mark() -> None:
    call = {"function": "pull", "arguments": (1, 2.5, "x")}

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        payload = pickle.dumps(call, protocol)
        assert read_mark(payload) is None
        assert pickle.loads(add_mark(payload, 1, 2)) == call


@pytest.mark.parametrize("payload", [b"", b".", b"\xfftracekit\x01", None, "text", 5])
def test_other_payloads_have_no_mark(payload: Any) -> None:
    assert read_mark(payload) is None


class Server:
    def pull(self) -> None: ...


def _local_invoke(rref: object, name: str, args: object, kwargs: object) -> None: ...


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (Call(Server.pull, (), {}), "Server.pull"),
        (Call(Server().pull, (), {}), "Server.pull"),
        (Call(Server, (), {}), "Server"),
        (Call(_local_invoke, (None, "pull", (), {}), {}), "pull"),
        (Call(partial(print), (), {}), "partial"),
    ],
)
def test_a_call_has_the_name_of_its_function(call: Call, name: str) -> None:
    assert function_name(call) == name
