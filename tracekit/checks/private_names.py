"""Finds the private names that the installed torch lacks.

It imports the modules of torch that have them. Called by `tracekit doctor` and by tests, never while training.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import warnings
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from tracekit.capture.private_names.entry import PrivateName
from tracekit.capture.private_names.table import PRIVATE_NAMES

__all__ = ["in_this_build", "is_there", "missing_names"]


def missing_names(names: Iterable[PrivateName] = PRIVATE_NAMES) -> list[PrivateName]:
    """Return the names that the installed torch lacks, without those that another name stands in for.

    A name is not missing if this build of torch lacks the whole part that it belongs to.
    """
    names = list(names)
    there = {name.path for name in names if is_there(name)}
    return [name for name in names if name.path not in there and name.instead not in there and in_this_build(name)]


def in_this_build(name: PrivateName) -> bool:
    """Return whether this build of torch has the part that the name belongs to."""
    import torch.distributed as dist

    if not dist.is_available():
        return "distributed" not in name.module
    if name.needs == "NCCL":
        return bool(dist.is_nccl_available())
    return name.needs != "RPC" or bool(importlib.import_module("torch.distributed.rpc").is_available())


def is_there(name: PrivateName) -> bool:
    """Return whether the installed torch has the name.

    An attribute of instances is there if its class declares it, or if a method of the class or `set_by` sets it.
    """
    place, rest = _follow(name.module.split("."))
    if rest:
        return False
    *owners, last = name.attribute.split(".") if name.attribute else [""]
    for owner in owners:
        if not hasattr(place, owner):
            return False
        place = getattr(place, owner)
    if not last or hasattr(place, last):
        return True
    if name.set_by:
        function, rest = _follow(name.set_by.split("."))
        return not rest and _sets(function, last)
    return isinstance(place, type) and _is_set_in_class(place, last)


def _follow(parts: list[str]) -> tuple[Any, list[str]]:
    """Return the object of a dotted name as far as there is one, and the parts that are not there."""
    place: Any = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], start=1):
        if hasattr(place, part):
            place = getattr(place, part)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some modules warn that they are deprecated
                place = importlib.import_module(".".join(parts[: number + 1]))
        except ImportError:
            return place, parts[number:]
    return place, []


def _is_set_in_class(kind: type, attribute: str) -> bool:
    for base in kind.__mro__:
        if attribute in vars(base).get("__annotations__", {}):
            return True
        if any(_sets(member, attribute) for member in vars(base).values()):
            return True
    return False


def _sets(function: Any, attribute: str) -> bool:
    """Return whether the code of a function has an assignment to an attribute of this name."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return isinstance(code, CodeType) and any(
        instruction.opname == "STORE_ATTR" and instruction.argval == attribute
        for each in _nested(code)
        for instruction in dis.get_instructions(each)
    )


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
