"""`tracekit analyze`: the options about the model and the device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.builders import TraceBuilder
from tracekit.cli import cli


def test_flops_and_peak_of_the_options_give_the_mfu(tmp_path: Path) -> None:
    """1e9 operations in 1 ms are 1e12 a second, half of 2e12."""
    path = TraceBuilder(world_size=1).step(0, 0, 1000).op("aten::mm", 0, 1000).write(tmp_path / "rank0.json")
    options = ["--section", "roofline", "--flops-per-step", "1e9", "--peak-tflops", "2"]
    result = json.loads(CliRunner().invoke(cli, ["analyze", str(path), *options, "--json"]).stdout)
    (row,) = result["roofline"]["by_rank"]
    assert (row["flops"], row["peak_flops_per_s"]) == (10**9, 2e12)
    assert row["mfu"] == pytest.approx(0.5)
    text = CliRunner().invoke(cli, ["analyze", str(path), *options]).stdout
    assert "1 GFLOP a step and rank: 1 TFLOP/s, 1 TFLOP/s in the 100% spent" in text
    assert "MFU 50%, of 2 TFLOP/s (given)" in " ".join(text.split())


@pytest.mark.parametrize("option", ["--flops-per-step", "--peak-tflops"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much"])
def test_amounts_that_are_not_above_zero_are_refused(tmp_path: Path, option: str, value: str) -> None:
    path = TraceBuilder(world_size=1).step(0, 0, 1000).write(tmp_path / "rank0.json")
    outcome = CliRunner().invoke(cli, ["analyze", str(path), option, value])
    assert outcome.exit_code == 2


def test_a_step_begins_with_what_the_option_names(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1)
    for k in range(4):
        trace.op("my::loop", 100 * k, 60)
    command = ["analyze", str(trace.write(tmp_path / "rank0.json")), "--step-anchor"]

    result = json.loads(CliRunner().invoke(cli, [*command, "^my::", "--json"]).stdout)["run"]
    screen = CliRunner().invoke(cli, [*command, "^my::"]).stdout
    refused = CliRunner().invoke(cli, [*command, "("])

    assert (result["step_anchor"], result["steps_from"], result["step_ns"]["count"]) == ("^my::", ["anchor"], 3)
    assert "from --step-anchor" in screen.splitlines()[2]
    assert "--step-anchor '^my::'" in screen.splitlines()[-1]
    assert refused.exit_code == 2


def test_an_html_report_is_written_once(tmp_path: Path) -> None:
    """GIVEN a run WHEN its page is written twice THEN the second time needs --force."""
    path = TraceBuilder(world_size=1).step(0, 0, 1000).op("aten::mm", 0, 1000).write(tmp_path / "rank0.json")
    page = tmp_path / "report.html"
    command = ["analyze", str(path), "-o", str(page)]

    first, second = CliRunner().invoke(cli, command), CliRunner().invoke(cli, command)

    assert (first.exit_code, first.stderr) == (0, f"wrote {page}\n")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert second.exit_code == 3
    assert "exists already" in second.stderr
    assert CliRunner().invoke(cli, [*command, "--force"]).exit_code == 0


def test_what_exists_already_is_refused_before_the_run_is_read(tmp_path: Path) -> None:
    (tmp_path / "report.json").touch()
    (tmp_path / "tables.csv").mkdir()
    (tmp_path / "tables.csv" / "ranks.csv").touch()
    for name in ("report.json", "tables.csv"):
        refused = CliRunner().invoke(cli, ["analyze", str(tmp_path / "no run"), "-o", str(tmp_path / name)])
        assert (refused.exit_code, refused.stderr) == (
            3,
            f"Error: {tmp_path / name}: exists already. Hint: choose another name, or overwrite it with --force\n",
        )


def test_an_html_report_has_the_sections_that_were_asked_for(tmp_path: Path) -> None:
    path = TraceBuilder(world_size=1).step(0, 0, 1000).op("aten::mm", 0, 1000).write(tmp_path / "rank0.json")
    page = tmp_path / "report.html"

    outcome = CliRunner().invoke(cli, ["analyze", str(path), "--section", "breakdown", "-o", str(page)])

    assert outcome.exit_code == 0, outcome.stderr
    assert '"lanes_reason":null' in page.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--actions"], "--actions: "),
        (["--json"], "the name does not end in .json"),
    ],
)
def test_what_an_html_report_does_not_have_is_refused(tmp_path: Path, options: list[str], message: str) -> None:
    path = TraceBuilder(world_size=1).step(0, 0, 1000).op("aten::mm", 0, 1000).write(tmp_path / "rank0.json")
    outcome = CliRunner().invoke(cli, ["analyze", str(path), "-o", str(tmp_path / "report.html"), *options])
    assert outcome.exit_code == 2
    assert message in outcome.stderr
