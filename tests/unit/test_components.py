"""A missing component may skip a test for a developer, never in CI."""

from __future__ import annotations

import pytest

from tests.components import require, require_module


def test_a_present_component_lets_the_test_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    require("node", "/usr/bin/node", "install it")


@pytest.mark.parametrize("ci", ["", "false", "0"])
def test_outside_ci_it_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(pytest.skip.Exception, match="needs node: install it"):
        require("node", None, "install it")


def test_in_ci_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs node: install it"):
        require("node", None, "install it")


def test_in_ci_a_missing_gpu_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="needs gpu"):
        require("gpu", False, "no CUDA device")


def test_a_module_that_is_missing_is_a_component_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert require_module("json.decoder").__name__ == "json.decoder"
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs not_there"):
        require_module("not_there.at_all")
