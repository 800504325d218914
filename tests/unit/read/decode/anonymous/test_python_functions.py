"""Python functions of an anonymised trace: those of torch and Python keep their names, all others lose them."""

from __future__ import annotations

import pytest

from tests.unit.read.decode.anonymous.with_pseudonyms import with_pseudonyms
from tracekit.read.decode.anonymous.python_functions import anonymous_python_function


def anonymous(name: str) -> str:
    return with_pseudonyms(anonymous_python_function, name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("<eval_with_key>.12 from /home/acme/x.py:1276 in wrapped(4): forward", "<eval_with_key>.12(4): forward"),
        ("<eval_with_key>.12(4): acme", "<eval_with_key>.12(4): function-1"),
        ("<string>(2): acme", "<string>(2): function-1"),
        ("<ipython-input-3-abc>(12): acme", "<ipython-input-3>(12): function-1"),
        ("<frozen acme>(12): f", "<path-1>(12): function-1"),
        ("<frozen json.acme>(12): f", "<path-1>(12): function-1"),
        ("<attrs generated init acme.Net>(2): __init__", "<path-1>(2): function-1"),
        ("</home/acme/x.py(3): acme", "<path-1>(3): function-1"),
        ("<built-in method acme of PyCapsule object at 0x7f>", "<built-in method function-1>"),
        ("<built-in method step of Acme object at 0x7f>", "<built-in method function-1>"),
        ("<built-in function acme>", "<built-in function function-1>"),
        ("<acme>", "function-1"),
        ("<built-in acme> of x>", "function-1"),
        ("torch/x.py(a)/home/acme/y.py(3): f", "function-1"),
        ("acme\n.py(3): step", "path-1.py(3): function-1"),
    ],
)
def test_what_is_the_programs_is_replaced(name: str, expected: str) -> None:
    assert anonymous(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "<frozen importlib._bootstrap>(241): _call_with_frames_removed",
        "<frozen runpy>(88): _run_code",
        "<string>(1): <module>",
        "<built-in function print>",
        "<built-in function linear>",
        "<built-in function sleep>",
        "<built-in method len>",
        "threading.py(90): run",
        "torch/nn/linear.py(3): forward",
    ],
)
def test_what_is_of_python_or_torch_stays(name: str) -> None:
    assert anonymous(name) == name


@pytest.mark.parametrize("owner", ["type", "list", "Tensor", "torch._C._EngineBase", "_io.TextIOWrapper"])
def test_a_method_of_a_public_type_stays_without_its_address(owner: str) -> None:
    assert anonymous(f"<built-in method write of {owner} object at 0x7f>") == "<built-in method write>"
