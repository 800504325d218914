"""What is found out about this installation, and which command gets what is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.places import ROOT
from tracekit import __version__
from tracekit import checks as installation
from tracekit.checks import EXTRAS, NATIVE_PARTS, Check, examine


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The distributions that are installed, as the test says; torch is never really tried."""
    versions = {"torch": "2.13.0", "click": "8.5.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(
        importlib.metadata, "requires", lambda name: ["click>=8.2", "rich>=13.7", "isal>=1.7; extra == 'isal'"]
    )
    monkeypatch.setattr(installation, "try_torch", list)
    return versions


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_it_lists_exactly_the_extras_that_can_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra.name for extra in EXTRAS} == set(extras) - {"all", "dev", "docs"}
    for extra in EXTRAS:
        (requirement,) = extras[extra.name]
        assert requirement.startswith(f"{extra.distribution}>=")


def test_it_says_where_the_cache_is(installed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_name(examine())["cache"].found == "none (TRACEKIT_CACHE=0)"
    monkeypatch.delenv("TRACEKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    beside = "of the probe's runs beside their traces"
    assert by_name(examine())["cache"].found == f"in {tmp_path}/torch-tracekit, nothing yet; {beside}"
    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path))
    assert by_name(examine())["cache"].found == f"in {tmp_path}/.tracekit-cache, nothing yet"
    (tmp_path / ".tracekit-cache").mkdir()
    entry = f"{'0' * 16}-{'0' * 32}.summary"
    (tmp_path / ".tracekit-cache" / entry).write_bytes(bytes(1500))
    assert by_name(examine())["cache"].found == f"in {tmp_path}/.tracekit-cache, 1.5 kB"


def test_a_missing_extra_comes_with_the_command_that_gets_it(installed: dict[str, str]) -> None:
    checks = by_name(examine())
    assert checks["torch"] == Check(name="torch", state="ok", found="torch 2.13.0")
    assert checks["viewer"].state == "absent"
    assert checks["viewer"].remedy == "pip install 'torch-tracekit[viewer]'"


@pytest.mark.parametrize(
    ("pandas", "hta", "is_told"), [("3.1.1", "0.5.0", True), ("2.2.3", "0.5.0", False), ("3.1.1", "", False)]
)
def test_what_hta_loses_on_pandas_3_comes_with_the_command_that_gets_it(
    installed: dict[str, str], pandas: str, hta: str, is_told: bool
) -> None:
    installed["pandas"] = pandas
    if hta:
        installed["holistictraceanalysis"] = hta
    told = by_name(examine()).get("hta: pandas")
    assert (told is not None) == is_told
    if told is not None:
        assert (told.state, told.remedy) == ("absent", "pip install 'pandas>=2.2,<3'")
        assert pandas in told.found


def test_a_missing_core_library_is_a_problem_and_an_extra_of_the_same_list_is_none(installed: dict[str, str]) -> None:
    checks = by_name(examine())
    assert checks["click"].state == "ok"
    assert checks["rich"] == Check(
        name="rich", state="problem", found="not installed", remedy="pip install 'rich>=13.7'"
    )


def test_the_unrelated_distribution_is_a_problem_with_its_remedy(installed: dict[str, str]) -> None:
    assert not any("PyPI" in check.name for check in examine())
    installed["tracekit"] = "0.0.3"
    check = by_name(examine())["tracekit (PyPI)"]
    assert check.state == "problem"
    assert "0.0.3" in check.found
    assert check.remedy.startswith("pip uninstall -y tracekit && pip install --force-reinstall --no-deps ")


def test_it_runs_from_a_source_tree_that_is_not_installed(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert by_name(examine())["tracekit"].found == __version__


def test_torch_is_not_tried_where_it_is_not_installed(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Check(name="torch: gloo", state="problem", found="RuntimeError: no interface", remedy="set a variable")
    monkeypatch.setattr(installation, "try_torch", lambda: [broken])
    assert by_name(examine())["torch: gloo"] == broken
    del installed["torch"]
    checks = by_name(examine())
    assert checks["torch"].remedy == "pip install torch"
    assert "torch: gloo" not in checks


def test_it_counts_processors_where_the_system_has_no_affinities(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert by_name(examine())["cpus"].found == "6"


class TestNativeParts:
    """Whether the compiled decoder and encoder are used, else why not and what to do."""

    @pytest.fixture(autouse=True)
    def reinstall(self, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
        """GIVEN tracekit, installed from a folder whose name has a space, and a compiler."""
        source = tmp_path / "my source"
        source.mkdir()
        self.record_origin(monkeypatch, tmp_path, {"url": source.as_uri(), "dir_info": {}})
        monkeypatch.delenv("TRACEKIT_NATIVE", raising=False)
        monkeypatch.setattr(shutil, "which", {"g++": "/usr/bin/g++"}.get)
        return f"pip install --force-reinstall --no-deps --no-cache-dir '{source}'"

    def record_origin(self, monkeypatch: pytest.MonkeyPatch, folder: Path, origin: dict[str, object] | None) -> None:
        """Write what pip leaves of an installation, and let it be found first."""
        info = folder / "torch_tracekit-0.1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.4\nName: torch-tracekit\nVersion: 0.1.0\n")
        (info / "direct_url.json").unlink(missing_ok=True)
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps(origin))
        monkeypatch.syspath_prepend(folder)

    def fail(self, monkeypatch: pytest.MonkeyPatch, error: type[ImportError], text: str) -> None:
        """Let both extensions fail as they are imported."""
        modules = {module: extension for _, module, extension in NATIVE_PARTS}
        import_module = importlib.import_module

        def failing(name: str) -> object:
            if name in modules:
                raise error(text, name=modules[name])
            return import_module(name)

        monkeypatch.setattr(importlib, "import_module", failing)

    def parts(self) -> tuple[Check, Check]:
        checks = by_name(examine())
        return checks["decoder"], checks["encoder"]

    def test_they_are_built_for_tests(self) -> None:
        assert {(check.state, check.found, check.remedy) for check in self.parts()} == {("ok", "native", "")}

    def test_they_were_not_built(self, monkeypatch: pytest.MonkeyPatch, reinstall: str) -> None:
        self.fail(monkeypatch, ModuleNotFoundError, "No module named ...")
        for check in self.parts():
            assert (check.state, check.remedy) == ("absent", reinstall)
            assert check.found.endswith("the native one was not built when tracekit was installed")

    @pytest.mark.parametrize(("user", "as_root"), [(0, ""), (1000, "sudo ")])
    def test_there_is_no_compiler(
        self, monkeypatch: pytest.MonkeyPatch, reinstall: str, user: int, as_root: str
    ) -> None:
        self.fail(monkeypatch, ModuleNotFoundError, "No module named ...")
        monkeypatch.setattr(shutil, "which", {"apt-get": "/usr/bin/apt-get"}.get)
        monkeypatch.setattr(os, "geteuid", lambda: user)
        for check in self.parts():
            assert check.found.endswith("was not built when tracekit was installed, and there is no C++ compiler now")
            assert check.remedy == f"{as_root}apt-get install -y g++ && {reinstall}"
        monkeypatch.setattr(shutil, "which", lambda name: None)
        assert {check.remedy for check in self.parts()} == {f"install a C++ compiler, then type: {reinstall}"}

    def test_they_do_not_load(self, monkeypatch: pytest.MonkeyPatch, reinstall: str) -> None:
        self.fail(monkeypatch, ImportError, "undefined symbol: _Z1\nand more")
        for check in self.parts():
            assert (check.state, check.remedy) == ("problem", reinstall)
            assert check.found == "portable: the native one does not load (undefined symbol: _Z1)"

    def test_they_are_switched_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRACEKIT_NATIVE", "0")
        for check in self.parts():
            assert (check.state, check.remedy) == ("absent", "unset TRACEKIT_NATIVE")
            assert check.found == "portable: TRACEKIT_NATIVE switches the native one off"

    def test_they_are_asked_for_and_missing(self, monkeypatch: pytest.MonkeyPatch, reinstall: str) -> None:
        monkeypatch.setenv("TRACEKIT_NATIVE", "1")
        assert {check.state for check in self.parts()} == {"ok"}
        self.fail(monkeypatch, ModuleNotFoundError, "No module named ...")
        assert {(check.state, check.remedy) for check in self.parts()} == {("problem", reinstall)}


@pytest.mark.parametrize(("version", "state"), [("8.1.8", "problem"), ("8.2", "ok"), ("8.10.0rc1", "ok")])
def test_a_package_that_is_too_old_is_named(installed: dict[str, str], version: str, state: str) -> None:
    installed["click"] = version
    check = by_name(examine())["click"]
    assert (check.state, check.remedy) == (state, "pip install 'click>=8.2'" if state == "problem" else "")
