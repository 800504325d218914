"""`--anonymize`: no output of any command has a name of a host, path, module, group or annotation."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

import tracekit.trace_processor
from tests.components import require_module
from tests.places import ROOT
from tests.secret_names import SECRET, assert_no_secret, decoding_calls, secret_ddp, secret_gpu
from tracekit.cli import cli
from tracekit.render.merged.formats import FORMATS
from tracekit.trace_processor import Answer, TraceProcessor


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secret") / "home-of-acme"


@pytest.fixture(scope="module")
def ddp(root: Path) -> Path:
    return secret_ddp(root)


@pytest.fixture(scope="module")
def gpu(root: Path) -> Path:
    return secret_gpu(root)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEKIT_CACHE", "0")
    monkeypatch.setenv("TRACEKIT_JOBS", "1")  # starting worker processes takes longer than their work


def run(*arguments: str | Path, exit_codes: tuple[int, ...] = (0,), **environment: str) -> Result:
    result = CliRunner().invoke(cli, [*map(str, arguments)], prog_name="tracekit", env=environment)
    assert result.exit_code in exit_codes, result.output
    return result


def texts_of(path: Path) -> list[str]:
    """Return the text of a file, or of each file of a folder, unpacked."""
    if path.is_dir():
        return [text for file in path.iterdir() for text in texts_of(file)]
    data = path.read_bytes()
    if path.suffix == ".parquet":
        return [pd.read_parquet(path).to_csv(), data.decode("latin-1")]
    if path.suffix == ".xlsx":
        archive = zipfile.ZipFile(io.BytesIO(data))
        return [archive.read(name).decode("latin-1") for name in archive.namelist()]
    return [(gzip.decompress(data) if path.suffix == ".gz" else data).decode("latin-1")]


@pytest.mark.parametrize("kind", ["ddp", "gpu"])
@pytest.mark.parametrize("suffix", ["html", "json", "txt", "md", "csv", "parquet", "xlsx"])
def test_no_file_of_a_report_has_a_secret_name(suffix: str, kind: str, request: pytest.FixtureRequest) -> None:
    for module in {"parquet": ["pyarrow"], "xlsx": ["openpyxl"]}.get(suffix, []):
        require_module(module)
    result = run("analyze", request.getfixturevalue(kind), "--anonymize", "-o", f"report.{suffix}")
    texts = texts_of(Path(f"report.{suffix}"))
    assert len("".join(texts)) > 500
    assert_no_secret(result.output, *texts)


@pytest.mark.parametrize("kind", ["ddp", "gpu"])
@pytest.mark.parametrize(
    "command", ["analyze", "analyze --full", "info", "info --kernels", "whatif", "whatif --json", "compare", "check"]
)
def test_no_command_prints_a_secret_name(command: str, kind: str, request: pytest.FixtureRequest) -> None:
    name, *options = command.split()
    path = request.getfixturevalue(kind)
    paths = {"compare": [path, path], "check": [path, "--baseline", path]}.get(name, [path])
    result = run(name, *paths, *options, "--anonymize", exit_codes=(0, 1))
    assert "run-1" in result.stdout or "--kernels" in options
    assert_no_secret(result.output)


@pytest.mark.parametrize("kind", ["ddp", "gpu"])
@pytest.mark.parametrize("form", FORMATS)
def test_no_merged_trace_has_a_secret_name(form: str, kind: str, request: pytest.FixtureRequest) -> None:
    output = FORMATS[form].default_name
    result = run("merge", request.getfixturevalue(kind), "--anonymize", "--format", form, "-o", output)
    (text,) = texts_of(Path(output))
    assert_no_secret(result.output, text)
    assert "annotation-1" in text
    assert "tracekit.module:module-" in text


class Rows(TraceProcessor):
    """A trace processor that answers with a name from the trace that it loaded."""

    def ask(self, sql: str) -> Answer:
        rows = [] if "from stats" in sql else [(self.name, 1, 2)]
        return Answer(columns=("name", "idx", "value"), rows=rows)

    def _load(self, trace: Any) -> None:
        self.name = trace.read().decode("latin-1").split("annotation-")[1][:1]

    def close(self) -> None:
        pass


def test_no_answer_of_a_query_has_a_secret_name(ddp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracekit.trace_processor, "open_trace_processor", Rows)
    for form in ("--csv", "--json", "-orows.txt"):
        assert_no_secret(run("query", ddp, "select", form, "--anonymize").output)


def test_a_merged_trace_is_refused_as_its_names_cannot_be_replaced(ddp: Path) -> None:
    run("merge", ddp, "-o", "run.pftrace")
    assert "--anonymize" in run("query", "run.pftrace", "select 1", "--anonymize", exit_codes=(2,)).stderr


def without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_texts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_texts(each) for each in value]
    return "" if isinstance(value, str) else value


@pytest.mark.parametrize("kind", ["ddp", "gpu"])
def test_all_numbers_are_those_of_the_run_itself(kind: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(kind)
    recorded, anonymous = (json.loads(run("analyze", path, "--json", *more).stdout) for more in ([], ["--anonymize"]))
    assert without_texts(anonymous) == without_texts(recorded)
    assert anonymous["run"]["path"] == "run-1"


def test_results_are_equal_bytes_for_any_number_of_jobs_and_either_decoder(ddp: Path) -> None:
    options = ("analyze", ddp, "--json", "--anonymize")
    first = run(*options).stdout
    assert run(*options, "--jobs", "2").stdout == first
    assert run(*options, TRACEKIT_NATIVE="0").stdout == first
    run("merge", ddp, "--anonymize", "-o", "a.pftrace")
    run("merge", ddp, "--anonymize", "-o", "b.pftrace")
    assert Path("a.pftrace").read_bytes() == Path("b.pftrace").read_bytes()


def test_notes_name_files_by_their_pseudonyms(ddp: Path) -> None:
    notes = json.loads(run("analyze", ddp, "--json", "--anonymize").stdout)["notes"]
    about_files = [(note["file"], note["text"]) for note in notes if note["id"] == "capture"]
    ending = "module-5.0 is not wrapped; see path-2, on host-2"
    assert about_files == [(f"file-{n}", f"rank {n - 1}: file-{n}: {ending}") for n in (1, 2)]


@pytest.fixture(scope="module")
def spaced(root: Path) -> Path:
    """A folder with a space in its path, with a file that is there already."""
    folder = root / "john smith" / "acme"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "there.html").touch()
    return folder


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("analyze", ["-o", "{}/there.html"]),
        ("analyze", ["-o{}/there.html"]),
        ("analyze", ["-o", "{}/report.html", "--force"]),
        ("analyze", ["--cache-dir={}/there.html/cache"]),
        ("analyze", ["--ranks", "{}"]),
        ("analyze", ["--run", "acme"]),
        ("analyze", ["--attempt", "7"]),
        ("analyze", ["--config", "{}/c.toml"]),
        ("check", ["--gates", "{}/gates.toml"]),
        ("check", ["--baseline", "{}/run"]),
        ("merge", ["-o", "{}/run.pftrace"]),
        ("query", ["{}/q.sql"]),
    ],
)
def test_no_message_quotes_what_was_typed(command: str, options: list[str], ddp: Path, spaced: Path) -> None:
    typed = [option.format(spaced) for option in options]
    before = typed if "--config" in typed else []
    arguments = [*before, command, ddp, *([] if before else typed), "--anonymize"]
    result = run(*arguments, exit_codes=(0, 2, 3))
    for name in (SECRET, "john", "smith"):
        assert name not in result.output.lower()


@pytest.mark.parametrize("arguments", [["--ranks", "7"], ["--run", "acme-other"], ["--steps", "900:"]])
def test_no_error_quotes_a_secret_name(arguments: list[str], ddp: Path) -> None:
    result = run("analyze", ddp, "--anonymize", *arguments, exit_codes=(2, 3))
    assert str(ddp) not in result.stderr
    assert "acme-runs" not in result.stderr
    assert "acme-node-17" not in result.stderr


def test_no_error_quotes_a_path_that_is_not_there(root: Path) -> None:
    result = run("analyze", root / "acme-typo", "--anonymize", exit_codes=(3,))
    assert result.stderr.startswith("Error: run-1: no such file or folder")


def test_a_variable_and_a_file_of_settings_ask_for_it(ddp: Path) -> None:
    assert_no_secret(run("analyze", ddp, TRACEKIT_ANONYMIZE="1").output)
    Path("tracekit.toml").write_text("anonymize = true\n")
    assert_no_secret(run("analyze", ddp).output)


def test_runs_that_are_compared_share_their_pseudonyms(ddp: Path, tmp_path: Path) -> None:
    document = json.loads(run("compare", ddp, secret_ddp(tmp_path / "acme-2"), "--json", "--anonymize").stdout)
    paths = [document["candidate"]["path"], *(each["path"] for each in document["baselines"])]
    assert paths == ["run-2", "run-1"]


def test_whoever_reads_a_trace_says_whose_names_it_has() -> None:
    """GIVEN the code of the package WHEN something decodes a trace THEN it passes the pseudonyms of the run."""
    calls = decoding_calls(ROOT / "tracekit")
    readers = {"kernel_list.py", "load.py", "rank_page.py", "step_lanes.py", "summarize.py"}
    assert readers <= {name for name, _ in calls}
    assert [name for name, keywords in calls if "namer" not in keywords] == []
