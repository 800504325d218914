"""Arguments of an anonymised event: known keys stay, with values that have a public form or no letters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.read.decode.anonymous.with_pseudonyms import with_pseudonyms
from tracekit.read.decode.anonymous.trace import anonymous_arguments
from tracekit.read.decode.field_values import select_extra_args


def anonymous(arguments: dict[str, Any]) -> dict[str, Any]:
    kept = with_pseudonyms(anonymous_arguments, select_extra_args(msgspec.json.encode(arguments)))
    return msgspec.json.decode(kept, type=dict[str, Any]) if kept else {}


@pytest.mark.parametrize(
    "arguments",
    [
        {"acme": 5},
        {"acme": True},
        {"acme": None},
        {"Input Dims": {"acme": 5}},
        {"Input Dims": ["acme"]},
        {"dtype": "acme"},
        {"Collective name": "acme_allreduce"},
        {"kernel_backend": "acme"},
        {"kernel_file": "/tmp/acme.py"},
        {"kernel": {"acme": 1}},
        {"Module Hierarchy": "acme"},
        {"Process Group Name": ["acme"]},
    ],
)
def test_what_is_unknown_is_left_out(arguments: dict[str, Any]) -> None:
    assert anonymous(arguments) == {}


def test_a_part_of_a_list_that_is_not_public_is_empty() -> None:
    assert anonymous(
        {"Input type": ["acme", "float", ["c10::Acme", "long int"]], "Concrete Inputs": ["acme", "3"]}
    ) == {
        "Input type": ["", "float", ["", "long int"]],
        "Concrete Inputs": ["", "3"],
    }


TYPES = [
    *("float", "double", "long int", "unsigned char", "signed char", "c10::BFloat16", "c10::Half", "bool", "Tensor"),
    *("c10::Float8_e4m3fn", "c10::complex<float>", "GenericList", "Scalar", "ScalarList", "TensorList", "Device", ""),
]


@pytest.mark.parametrize(
    "arguments",
    [
        {"Input Dims": [[2, 3], []], "Input Strides": [[3, 1], []], "Input type": TYPES},
        {"Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 5, "Group size": 2},
        {"Collective name": "all_to_allv", "dtype": "Float8_e4m3fn", "Process Group Ranks": "[0, 1]"},
        {"Process Group Name": "7", "Process Group Description": "mesh_tp", "Src Rank": 1, "Dst Rank": 2},
        {"device": 0, "stream": 7, "grid": [1, 2, 3], "block": [1, 1, 1], "est. achieved occupancy %": 30},
        {"kernel": "void f<float>", "kernel_backend": "triton", "flops": 1e30, "finished": True},
    ],
)
def test_what_torch_writes_stays(arguments: dict[str, Any]) -> None:
    assert anonymous(arguments) == arguments


def test_a_group_has_its_pseudonym() -> None:
    assert anonymous({"Process Group Name": "acme"}) == {"Process Group Name": "group-a"}
