"""The names among the arguments of a command, for its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.cli.inputs.echo import asks_for_pseudonyms, typed_names


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--run", "acme"], {"acme": "job-x"}),
        (["--run=acme"], {"acme": "job-x"}),
        (["--annotation", "acme"], {"acme": "annotation-x"}),
        (["--gates", "acme.toml"], {"acme.toml": "path-x"}),
        (["analyze", "a/acme", "--json"], {"a/acme": "path-x"}),
        (["-o", "/x/acme.html"], {"/x/acme.html": "path-x", "/x": "path-x"}),
        (["-o/x/acme.html"], {"/x/acme.html": "path-x"}),
        (["--output=../acme.html"], {"../acme.html": "path-x"}),
        (["--config", "~nobody-of-this-name/acme"], {"~nobody-of-this-name/acme": "path-x"}),
    ],
)
def test_paths_and_names_have_pseudonyms(arguments: list[str], expected: dict[str, str]) -> None:
    assert expected.items() <= typed_names(arguments).items()


@pytest.mark.parametrize("arguments", [["-o", "a/report.html"], ["--config", "0"], ["--json", "analyze", "runs"]])
def test_other_arguments_stay(arguments: list[str]) -> None:
    assert typed_names(arguments) == typed_names([])


def test_the_current_folder_has_a_pseudonym(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed_names([])[str(tmp_path)] == "path-x"


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("true", True), ("0", False), ("False", False)])
def test_the_environment_may_ask_for_pseudonyms(value: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_ANONYMIZE", value)
    assert asks_for_pseudonyms(["analyze"]) is expected
    assert asks_for_pseudonyms(["analyze", "--anonymize"])
