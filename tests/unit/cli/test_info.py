"""`tracekit info`: what a run holds, and with --kernels what ran on its devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.builders import TraceBuilder
from tracekit.cli import cli


def info(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(cli, ["info", *map(str, arguments)], env=environment)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    built = TraceBuilder().step(0, 0, 1000).kernel("void my_mlp<128>(float*)", 50, 100, launched_at=1)
    built.kernel("void acme::my_ring<8>(int4*)", 300, 50, stream=27, launched_at=4)
    return built.write(tmp_path / "rank0.json")


def row(result: Result, function: str) -> list[str]:
    """Return the cells of the function's row."""
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.strip().startswith(function)]
    return line.split()


def test_kernels_are_listed_with_class_rule_count_and_time(trace: Path) -> None:
    result = info(trace, "--kernels")
    assert row(result, "my_mlp") == ["my_mlp", "compute", "-", "1", "0.10", "67%"]
    assert row(result, "acme::my_ring") == ["acme::my_ring", "compute", "-", "1", "0.05", "33%"]


def test_without_the_option_no_kernel_is_listed(trace: Path) -> None:
    assert "my_mlp" not in info(trace).stdout


def test_a_users_rule_is_applied_and_named_again(trace: Path) -> None:
    result = info(trace, "--kernels", "--communication-rule", "my_ring=all-to-all")
    assert row(result, "acme::my_ring")[:3] == ["acme::my_ring", "all_to_all", "my_ring"]
    assert "--communication-rule my_ring=all_to_all" in result.stdout.splitlines()[-1]


def test_rules_of_the_environment_are_separated_by_spaces(trace: Path) -> None:
    result = info(trace, "--kernels", TRACEKIT_COMMUNICATION_RULES="my_ring=dispatch my_mlp=combine")
    assert row(result, "acme::my_ring")[1] == "dispatch"
    assert row(result, "my_mlp")[1] == "combine"


@pytest.mark.parametrize("rule", ["my_ring", "my_ring=gathers", "(my_ring=all_gather"])
def test_what_is_no_rule_is_refused_in_one_line(trace: Path, rule: str) -> None:
    result = info(trace, "--communication-rule", rule)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert repr(rule) in line
