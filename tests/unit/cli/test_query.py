"""`tracekit query`: its formats and its errors, with a fake trace processor. tests/perfetto uses the real one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner, Result

import tracekit.trace_processor
from tests.places import DATA
from tracekit.cli import cli
from tracekit.read.files import storage
from tracekit.trace_processor import Answer, TraceProcessor, views_sql
from tracekit.trace_processor.processor import sql_error
from tracekit.trace_processor.views import parse_views

DDP = DATA / "ddp_slow_rank"


class Canned(TraceProcessor):
    """A trace processor that records the queries and returns always the same rows."""

    def __init__(self) -> None:
        self.loaded = b""
        self.asked: list[str] = []
        self.is_closed = False

    def ask(self, sql: str) -> Answer:
        if "from stats" in sql:
            return Answer(columns=("name", "idx", "value"), rows=[])
        self.asked.append(sql)
        if sql == "wrong":
            raise sql_error('Traceback\n  File "stdin" line 2 col 7\n    wrong\n    ^\nno such column: \x1b[2J')
        return Answer(columns=("rank", "name"), rows=[(0, "=a"), (1, None)])

    def _load(self, trace: BinaryIO) -> None:
        self.loaded = trace.read()

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Canned:
    canned = Canned()
    monkeypatch.setattr(tracekit.trace_processor, "open_trace_processor", lambda: canned)
    return canned


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    path = tmp_path / "run.pftrace"
    path.write_bytes(b"\x0a\x02\x08\x01")
    return path


def query(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["query", *map(str, arguments)], prog_name="tracekit", input=stdin)


def test_rows_as_a_table(processor: Canned, ready: Path) -> None:
    result = query(ready, "select 1")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.split() == ["rank", "name", "─" * 10, "0", "=a", "1", "NULL", "2", "rows", "Next:", "tracekit",
                                     "open", str(ready)]  # fmt: skip
    assert (processor.loaded, processor.asked) == (ready.read_bytes(), [views_sql(), "select 1"])
    assert processor.is_closed


def test_a_run_is_merged_first(processor: Canned) -> None:
    result = query(DDP, "select 1")
    assert result.exit_code == 0, result.stderr
    assert b"compute" in processor.loaded
    assert result.stdout.splitlines()[-1] == f"Next: tracekit merge {DDP} -o run.pftrace"


def test_json_and_csv(processor: Canned, ready: Path, tmp_path: Path) -> None:
    found = json.loads(query(ready, "select 1", "--json").stdout)
    assert found["rows"] == [{"rank": 0, "name": "=a"}, {"rank": 1, "name": None}]
    assert (found["schema_version"], found["columns"], found["path"]) == (1, ["rank", "name"], str(ready))
    assert query(ready, "select 1", "--csv").stdout == "rank,name\n0,'=a\n1,\n"
    for name in ("a.json", "a.csv", "a.txt"):
        assert query(ready, "select 1", "-o", tmp_path / name).stdout == ""
    assert json.loads((tmp_path / "a.json").read_text()) == found
    assert (tmp_path / "a.csv").read_text() == "rank,name\n0,'=a\n1,\n"
    assert "2 rows" in (tmp_path / "a.txt").read_text()
    assert query(ready, "select 1", "-o", tmp_path / "a.csv").exit_code == 3
    assert query(ready, "select 1", "-o", tmp_path / "a.csv", "--force").exit_code == 0


def test_sql_from_a_file_or_stdin(processor: Canned, ready: Path, tmp_path: Path) -> None:
    file = tmp_path / "two.sql"
    file.write_text("select 1;\nselect 2")
    assert query(ready, file).exit_code == 0
    assert query(ready, "-", stdin="select 3").exit_code == 0
    assert [sql for sql in processor.asked if sql != views_sql()] == ["select 1;\nselect 2", "select 3"]
    missing = query(ready, tmp_path / "no.sql")
    assert (missing.exit_code, missing.stderr.count("\n")) == (3, 1)
    assert "no.sql: No such file or directory" in missing.stderr


def test_stdin_without_end_is_not_read_to_its_end(
    processor: Canned, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_MOST_BYTES", 1 << 20)
    result = query(ready, "-", stdin="\0" * (2 << 20))
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "Error: stdin: over 1 MiB long. Hint: give SQL in UTF-8\n"
    assert processor.asked == []


def test_wrong_sql_is_one_line(processor: Canned, ready: Path) -> None:
    result = query(ready, "wrong")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: the SQL is wrong in line 2, column 7: no such column: \\x1b[2J. "
        "Hint: tracekit's views: tracekit query --views\n"
    )
    assert processor.is_closed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--json", "--csv"], "--json and --csv"),
        (["--json", "-o", "a.csv"], "does not end in .json"),
        (["-o", "."], "-o .: a folder"),
        (["-o", "a.parquet"], "does not end in .json, .csv, .txt"),
        (["--ranks", "0"], "runs, ranks and steps cannot be selected"),
    ],
)
def test_contradicting_options(processor: Canned, ready: Path, options: list[str], message: str) -> None:
    result = query(ready, "select 1", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize("given", [[], ["run.pftrace"]])
def test_without_sql_the_hint_shows_a_query(processor: Canned, given: list[str]) -> None:
    result = query(*given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: a query takes a run, or a merged trace, and the SQL to ask it.")
    typed = f"tracekit query {(given or ['runs/'])[0]} 'select * from tracekit_steps'\n"
    assert result.stderr.endswith(typed)
    assert result.stderr.count("\n") == 1


def test_help_names_every_view() -> None:
    shown = query("--help").stdout
    views = re.findall(r"CREATE PERFETTO VIEW tracekit_(\w+)", views_sql())
    assert [view for view in views if not re.search(rf"\b{view}\b", shown)] == []
    assert max(map(len, shown.splitlines())) <= 80


def test_the_next_command_selects_the_same_ranks(processor: Canned) -> None:
    result = query(DDP, "select 1", "--ranks", "0", "--attempt", "0")
    assert result.stdout.splitlines()[-1] == f"Next: tracekit merge {DDP} --attempt=0 --ranks=0 -o run.pftrace"


def test_views_are_printed_without_a_run() -> None:
    result = query("--views")
    assert result.exit_code == 0
    views = parse_views(views_sql())
    for view in views:
        after = result.stdout.split(f"{view.name}\n", 1)[1]
        assert re.findall(r"^ (\w+) ", after.split("\n\n")[0], re.MULTILINE) == [name for name, *_ in view.columns]
    assert max(map(len, result.stdout.splitlines())) <= 80
