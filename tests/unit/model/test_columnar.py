"""Columnar tables: selecting and concatenating rows, comparing, pickling."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, make_dataclass
from types import GenericAlias
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tracekit.model.columnar import Columnar
from tracekit.model.events import Bool, Int32, Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Columnar):
    number: Int64
    flag: Bool


def table(*rows: tuple[int, bool]) -> Table:
    return Table(
        number=np.array([number for number, _ in rows], dtype=np.int64),
        flag=np.array([flag for _, flag in rows], dtype=np.bool_),
    )


@given(parts=st.lists(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.booleans())), min_size=1, max_size=4))
def test_concatenated_tables_have_all_rows_in_order_and_keep_dtypes(parts: list[list[tuple[int, bool]]]) -> None:
    whole = Table.concatenate([table(*rows) for rows in parts])
    assert whole == table(*(row for rows in parts for row in rows))
    assert (whole.number.dtype, whole.flag.dtype) == (np.int64, np.bool_)
    assert pickle.loads(pickle.dumps(whole)) == whole  # as a worker sends it


# NumPy has declared `NDArray` as an alias with the type of the elements as its only argument since 2.5.
ALIAS_OF_NUMPY_2_5 = GenericAlias(np.ndarray, (np.int32,))


@pytest.mark.parametrize("declared", [NDArray[np.int32], np.ndarray[Any, np.dtype[np.int32]], ALIAS_OF_NUMPY_2_5])
def test_an_empty_table_has_the_declared_dtype_in_each_form_that_numpy_gives_it(declared: Any) -> None:
    declared_table: Any = make_dataclass(
        "Declared", [("column", declared)], bases=(Columnar,), frozen=True, kw_only=True, eq=False
    )

    assert declared_table.empty().column.dtype == np.int32


@dataclass(frozen=True, kw_only=True, eq=False)
class _Row(Columnar):
    count: Int64
    place: Int32
    known: Bool


def test_columns_that_are_not_given_are_absent_or_false() -> None:
    table = _Row.of_rows(2, count=np.array([3, 4]))
    assert (table.count.tolist(), table.place.tolist(), table.known.tolist()) == ([3, 4], [-1, -1], [False, False])
    assert table.place.dtype == np.int32
    assert _Row.of_rows(2, count=5).count.tolist() == [5, 5]
    with pytest.raises(KeyError):
        _Row.of_rows(2, counts=5)
