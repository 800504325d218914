"""`tracekit hta --anonymize`: no analysis has a name of a host, path, module, group or annotation."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.components import require_module
from tests.places import ROOT
from tests.secret_names import assert_no_secret, decoding_calls, secret_gpu
from tracekit.cli import cli

pytestmark = pytest.mark.filterwarnings("ignore")
require_module("hta")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return secret_gpu(tmp_path_factory.mktemp("secret") / "home-of-acme")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEKIT_CACHE", "0")


def hta(*arguments: str | Path, exit_codes: tuple[int, ...] = (0,)) -> Result:
    result = CliRunner().invoke(cli, ["hta", *map(str, arguments)], prog_name="tracekit")
    assert result.exit_code in exit_codes, result.output
    return result


def test_no_analysis_of_hta_has_a_secret_name(gpu: Path) -> None:
    assert_no_secret(hta(gpu, "kernel-breakdown", "--anonymize", "--json").stdout)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_annotation_that_was_typed_is_not_quoted(form: list[str], gpu: Path) -> None:
    options = ["--annotation", "acme: load", "--anonymize", *form]
    assert_no_secret(hta(gpu, "critical-path", *options, exit_codes=(0, 3)).output)


def test_the_bridge_says_whose_names_a_trace_has() -> None:
    calls = decoding_calls(ROOT / "tracekit" / "hta")
    assert calls != []
    assert [name for name, keywords in calls if "namer" not in keywords] == []
