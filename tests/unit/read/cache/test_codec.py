"""Summaries to bytes and back: every declared field with any value, and bytes that hold no summary."""

from __future__ import annotations

import types
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracekit.explain.sections import ALL_PARTS
from tracekit.model.columnar import Columnar, element_type
from tracekit.model.communication import GroupKey, Messages
from tracekit.model.notes import NOTE_IDS, Note
from tracekit.model.summary import Part, RankSummary
from tracekit.read.cache.codec import CodecError, pack, unpack

_TEXT = st.text(max_size=6)


def _column(kind: Any, rows: int) -> st.SearchStrategy[np.ndarray]:
    if kind is np.ndarray:
        return st.lists(_TEXT, min_size=rows, max_size=rows).map(_of_texts)
    dtype = np.dtype(element_type(kind))
    low, high = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = st.lists(st.integers(int(low), int(high)), min_size=rows, max_size=rows)
    return values.map(lambda row: np.array(row, dtype=dtype))


def _of_texts(texts: list[str]) -> np.ndarray:
    column = np.empty(len(texts), dtype=object)
    column[:] = texts
    return column


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type. A type that is not handled here is one that no test has packed."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits: dict[str, int] = {}
        for part in arguments[1:]:
            limits |= {name: bound for name in ("ge", "le") if (bound := getattr(part, name)) is not None}
        return st.integers(limits.get("ge", -(1 << 63)), limits.get("le", (1 << 63) - 1))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is not ...:
        return st.tuples(*(values_of(argument) for argument in arguments))
    if origin in (tuple, list):
        return st.lists(values_of(arguments[0]), max_size=3).map(origin)
    if origin is dict:
        return st.dictionaries(*map(values_of, arguments), max_size=3)
    if kind is Note:
        others = {name: values_of(hint) for name, hint in get_type_hints(Note).items() if name != "id"}
        return st.builds(Note, id=st.sampled_from(sorted(NOTE_IDS)), **others)
    if isinstance(kind, type) and issubclass(kind, Columnar):
        hints = get_type_hints(kind)
        return st.integers(0, 3).flatmap(
            lambda rows: st.builds(kind, **{field.name: _column(hints[field.name], rows) for field in fields(kind)})
        )
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)  # numbers of metadata have limits
        return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in fields(kind)})
    return {
        int: st.integers(-(1 << 63), (1 << 63) - 1),
        float: st.floats(allow_nan=False),  # which is not equal to itself
        bool: st.booleans(),
        str: _TEXT,
        type(None): st.none(),
    }[kind]


@pytest.mark.parametrize("name", [field.name for field in fields(RankSummary) if field.name != "parts"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_field_of_a_summary_comes_back_equal(name: str, data: st.DataObject) -> None:
    """The fields come from the declaration, so that new ones are tested too."""
    value = data.draw(values_of(get_type_hints(RankSummary, include_extras=True)[name]))
    summary = replace(SUMMARY, **{name: value})
    actual = unpack(pack(summary), RankSummary)
    assert actual == summary
    assert pack(actual) == pack(summary)
    if isinstance(value, Columnar):
        columns = [(getattr(value, field.name), getattr(getattr(actual, name), field.name)) for field in fields(value)]
        assert all(before.dtype == after.dtype and after.flags.writeable for before, after in columns)


@pytest.mark.parametrize("part", ALL_PARTS.values(), ids=lambda part: part.name)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_part_of_a_summary_comes_back_as_it_was(part: Part[Any], data: st.DataObject) -> None:
    """Parts are taken from the sections: a new one is tried without being named here."""
    value = data.draw(values_of(part.type))
    packed = pack(value, part.type)
    assert unpack(packed, part.type) == value
    assert pack(unpack(packed, part.type), part.type) == packed
    assert unpack(pack(part.empty(), part.type), part.type) == part.empty()


# ---- what is refused ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Columnar):
    number: npt.NDArray[np.int64]
    name: np.ndarray


def table(number: Any, name: Any) -> Table:
    return Table(number=number, name=name)


@pytest.mark.parametrize("value", [1.0, 1 << 70, "1"])
def test_a_number_of_another_type_is_not_packed(value: Any) -> None:
    with pytest.raises(CodecError):
        pack(replace(SUMMARY, event_count=value))


@dataclass(frozen=True, kw_only=True)
class Share:
    ratio: float


def test_an_integer_for_a_declared_float_is_not_packed() -> None:
    """It would come back as 3.0, and be printed so."""
    assert unpack(pack(Share(ratio=3.0)), Share) == Share(ratio=3.0)
    with pytest.raises(CodecError):
        pack(Share(ratio=3))


def test_columns_of_different_lengths_are_refused() -> None:
    uneven = table(np.ones(2, dtype=np.int64), _of_texts(["a"]))
    with pytest.raises(CodecError, match="lengths"):
        unpack(pack(uneven), Table)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_changed_bytes_are_refused_or_are_a_summary(data: st.DataObject) -> None:
    """GIVEN bytes changed at random WHEN unpacked THEN there is a summary or a CodecError, and no other exception."""
    packed = bytearray(pack(SUMMARY))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        summary = unpack(bytes(packed), RankSummary)
    except CodecError:
        return
    assert isinstance(summary, RankSummary)
    assert len(pack(summary)) > 0


# ---- shared tuples -------------------------------------------------------------------------------------------------


WORLD = GroupKey(description="default_pg", ranks=tuple(range(1000)), name="0", parallelism="dp")
SUMMARY = RankSummary(
    rank=1,
    world_size=2,
    files=("rank1.json",),
    run_id=None,
    attempt=0,
    host="node0",
    host_id=None,
    device="gpu",
    device_name=None,
    serves_only=False,
    pipeline=None,
    strategies=("ddp",),
    strategies_inferred=True,
    groups=(WORLD,),
    mesh=None,
    clock=None,
    recorded_steps=(1, 2, 3),
    steps=(),
    event_count=5,
    first_event_ns=1_790_857_026_000_000_000,
    notes=(Note(id="limit", severity="info", text="é\ud7ff"),),
    messages=Messages.empty(),
    parts={},
)
