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
from tracekit.model.events import Bool, Int64


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
