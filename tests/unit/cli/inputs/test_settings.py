"""Settings: an option precedes a variable, and that the file; what is wrong is one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.builders import TraceBuilder, write_run
from tests.places import ROOT
from tracekit.cli import cli
from tracekit.cli.inputs.settings import KEYS, OTHER_VARIABLES, Key, option_defaults, settings
from tracekit.errors import UsageError
from tracekit.read.cache.cache_dir import CACHE_FOLDER


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, the current one, with no variable set."""
    for name in (*(key.variable for key in KEYS), *OTHER_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def run(tmp_path: Path) -> Path:
    trace = TraceBuilder(world_size=1).step(0, 0, 1000).kernel("my_ring", 300, 50, launched_at=4)
    return write_run(tmp_path / "run", [trace])


def tracekit(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], env=environment, prog_name="tracekit")


def values() -> dict[str, Any]:
    return {setting.key.name: setting.value for setting in settings() if setting.value is not None}


ALL = """
communication_rules = ["^my_ring=all_to_all", "my_mlp=compute"]
limits = ["ratio=1000", "text_bytes=128G"]
jobs = 3
cache = "caches/tracekit"
flops_per_step = 1.2e15
peak_tflops = 989
anonymize = true
strict = true
"""


def test_a_file_sets_every_key(folder: Path) -> None:
    (folder / "tracekit.toml").write_text(ALL)
    assert values() == {
        "communication_rules": ("^my_ring=all_to_all", "my_mlp=compute"),
        "limits": ("ratio=1000", "text_bytes=128G"),
        "jobs": 3,
        "cache": str(folder / "caches/tracekit"),
        "flops_per_step": 1.2e15,
        "peak_tflops": 989.0,
        "anonymize": True,
        "strict": True,
    }
    assert {setting.source for setting in settings()} == {str(folder / "tracekit.toml")}


def test_a_variable_precedes_the_file_and_an_option_both(folder: Path, run: Path) -> None:
    """GIVEN a rule in the file, another in the variable, a third as the option THEN the first that is given counts."""
    (folder / "tracekit.toml").write_text('communication_rules = ["my_ring=all_gather"]\n')
    variable = {"TRACEKIT_COMMUNICATION_RULES": "my_ring=all_to_all"}

    def kind_of_my_ring(*options: str, **environment: str) -> str:
        outcome = tracekit("info", run, "--kernels", *options, **environment)
        assert outcome.exit_code == 0, outcome.stderr
        return next(line.split()[1] for line in outcome.stdout.splitlines() if line.strip().startswith("my_ring"))

    assert kind_of_my_ring("--communication-rule", "my_ring=broadcast", **variable) == "broadcast"
    assert kind_of_my_ring(**variable) == "all_to_all"
    assert kind_of_my_ring() == "all_gather"
    (folder / "tracekit.toml").unlink()
    assert kind_of_my_ring() == "compute"


def test_the_cache_of_the_file_holds_unless_an_option_or_the_variable_says_otherwise(folder: Path, run: Path) -> None:
    def places(*options: str, **environment: str) -> list[str]:
        assert tracekit("info", run, *options, **environment).exit_code == 0
        found = sorted(str(path.parent.relative_to(folder.parent)) for path in folder.parent.rglob(CACHE_FOLDER))
        for path in folder.parent.rglob(CACHE_FOLDER):
            path.rename(path.with_name("seen"))
        return found

    (folder / "tracekit.toml").write_text("cache = 'c'\n")
    assert places() == ["project/c"]
    assert places("--no-cache") == []
    assert places("--cache-dir", "option") == ["project/option"]
    assert places(TRACEKIT_CACHE="variable") == ["project/variable"]
    (folder / "tracekit.toml").write_text("cache = false\n")
    assert places() == []
    assert places("--cache-dir", "again") == ["project/again"]


def test_the_file_makes_a_run_with_defects_fail(folder: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [TraceBuilder(world_size=2).step(0, 0, 1000).op("aten::mm", 0, 1000)])
    assert tracekit("analyze", run).exit_code == 0
    (folder / "tracekit.toml").write_text("strict = true\n")
    assert tracekit("analyze", run).exit_code == 3
    assert tracekit("analyze", run, TRACEKIT_STRICT="0").exit_code == 0


def test_flops_and_peak_of_the_file_give_the_mfu(folder: Path, tmp_path: Path) -> None:
    path = TraceBuilder(world_size=1).step(0, 0, 1000).op("aten::mm", 0, 1000).write(tmp_path / "rank0.json")
    (folder / "tracekit.toml").write_text("flops_per_step = 1e9\npeak_tflops = 2\n")
    (row,) = json.loads(tracekit("analyze", path, "--json").stdout)["roofline"]["by_rank"]
    assert row["mfu"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job = 2", "no setting is named 'job'. Did you mean 'jobs'?"),
        ("communication-rules = []", "no setting is named 'communication-rules'. Did you mean 'communication_rules'?"),
        ("speed = 2", "no setting is named 'speed'."),
        ("[gate]\nmax = 1", "no setting is named 'gate'. Did you mean 'gates'?"),
        ("jobs = 'many'", 'jobs = "many": not a whole number'),
        ("jobs = true", "jobs = true: not a whole number"),
        ("jobs = 0", "jobs = 0: not a whole number of at least 1. Hint: write it as in jobs = 4"),
        ("peak_tflops = -1", "peak_tflops: -1 is not a number above 0"),
        ("strict = 1", "strict = 1: not true or false"),
        ("cache = true", "cache: true is neither a folder nor false"),
        ("cache = ''", "cache: the path is empty"),
        ('limits = ["speed=3"]', "limits: 'speed=3' is none of the limits text_bytes, ratio, "),
        ("communication_rules = 'a=b'", 'communication_rules = "a=b": not a list of texts'),
        ("communication_rules = [1]", "communication_rules: 1 is no text"),
        ("communication_rules = ['x']", "communication_rules: rule 'x': it is not of the form regex=kind"),
        ("jobs = 2026-11-24", 'jobs = "2026-11-24": not a whole number'),
        ("jobs = ", "no TOML: "),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_that_names_it(folder: Path, run: Path, text: str, message: str) -> None:
    (folder / "tracekit.toml").write_text(text)
    outcome = tracekit("info", run)
    assert outcome.exit_code == 2
    assert f"{folder / 'tracekit.toml'}: {message}" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_wrong_variable_is_named(run: Path) -> None:
    outcome = tracekit("info", run, TRACEKIT_JOBS="many")
    assert outcome.exit_code == 2
    assert outcome.stderr == (
        "Error: TRACEKIT_JOBS=many: not a whole number of at least 1. Hint: write it as in TRACEKIT_JOBS=4\n"
    )


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_the_example_of_a_key_is_one(folder: Path, monkeypatch: pytest.MonkeyPatch, key: Key) -> None:
    (folder / "tracekit.toml").write_text(f"{key.name} = {key.example}\n")
    (of_file,) = values().values()
    (folder / "tracekit.toml").unlink()
    monkeypatch.setenv(key.variable, key.example.strip('["]'))
    (of_variable,) = values().values()
    assert of_file == (str(folder / of_variable) if key.name == "cache" else of_variable)


def test_gates_are_left_to_check(folder: Path) -> None:
    (folder / "tracekit.toml").write_text("jobs = 2\n[gates.step_time]\nmax = '200ms'\n")
    assert values() == {"jobs": 2}


def test_help_needs_no_valid_file(folder: Path) -> None:
    (folder / "tracekit.toml").write_text("jobs = 'many'")
    assert tracekit("analyze", "--help").exit_code == 0
    assert tracekit("--help").exit_code == 0


def test_defaults_are_read_when_they_are_asked_for_and_not_before(folder: Path) -> None:
    defaults = option_defaults()
    (folder / "tracekit.toml").write_text("jobs = 4")
    assert defaults["jobs"]() == 4
    assert (defaults["strict"](), defaults["communication_rule"](), defaults["peak_tflops"]()) == (False, (), None)
    with pytest.raises(UsageError):
        settings("missing.toml")


def test_options_and_parameters_of_keys_are_those_of_the_commands() -> None:
    from tracekit.cli.analyze import analyze

    options = {option: each.name for each in analyze.params for option in each.opts}
    for key in KEYS:
        first, *_ = key.option.split(", ")
        assert options[first] == key.parameter


def test_the_documentation_lists_every_key_with_its_variable_and_options() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| `(\w+)` \| (.+?) \|", (ROOT / "docs" / "settings.md").read_text())
    documented = {name: (variable, option.replace("`", "")) for name, variable, option in rows}
    assert documented == {key.name: (key.variable, key.option) for key in KEYS}


def test_every_variable_that_tracekit_reads_is_known() -> None:
    files = [file for file in (ROOT / "tracekit").rglob("*.py") if file.name not in ("settings.py", "config.py")]
    named = {name for file in files for name in re.findall(r"\bTRACEKIT(?:_[A-Z]+)+\b", file.read_text())}
    assert named - {"TRACEKIT_"} <= {*(key.variable for key in KEYS), *OTHER_VARIABLES}
