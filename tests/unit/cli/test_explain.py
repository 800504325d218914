"""`tracekit explain`: ids, what one means, how it was decided on a run, and who came close."""

from __future__ import annotations

from click.testing import CliRunner, Result

from tests.places import DATA
from tracekit.cli import cli
from tracekit.findings.catalogue import catalogue

RUN = str(DATA / "ddp_slow_rank")


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *arguments], prog_name="tracekit")


def test_all_ids_are_listed() -> None:
    listed = {line.split()[0] for line in explain().stdout.splitlines() if line[:1].strip()}
    assert set(catalogue()) <= listed


def test_an_id_is_explained_with_its_threshold() -> None:
    result = explain("data-loading")
    assert result.exit_code == 0
    assert "5.0%" in result.stdout


def test_a_run_says_what_each_finding_took_and_what_came_close() -> None:
    words = explain(RUN, "--no-cache").stdout
    assert "1. straggler" in words
    assert "(at least 2.0%)" in words
    assert "of the mean step" in words.lower()


def test_a_finding_is_explained_on_a_run() -> None:
    words = explain("straggler", RUN, "--no-cache").stdout
    assert "share_of_step" in words


def test_a_wrong_id_is_one_line_with_the_nearest() -> None:
    result = explain("stragler")
    assert (result.exit_code, "straggler" in result.stderr) == (2, True)
    assert "Traceback" not in result.stderr
