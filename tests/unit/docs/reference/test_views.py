"""The page of SQL views: every view and column with its comment."""

from __future__ import annotations

from tracekit.trace_processor.processor import views_sql
from tracekit.trace_processor.views import parse_views

SQL = """\
-- What the file is about.

-- Cars, a row
-- for each.
CREATE PERFETTO VIEW cars(
  -- The car's
  -- number.
  id LONG,
  -- Its owner.
  owner JOINID(person.id)
) AS
-- no meaning of a column
SELECT id, owner FROM all_cars;
"""


def test_every_view_and_column_has_a_meaning() -> None:
    views = parse_views(views_sql())

    assert len(views) == views_sql().count("CREATE PERFETTO ")
    assert [view.name for view in views if not view.meaning or not view.columns] == []
    assert [(view.name, column) for view in views for column, _, meaning in view.columns if not meaning] == []
