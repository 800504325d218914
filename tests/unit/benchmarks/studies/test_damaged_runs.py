"""The study of what damaged files cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.studies.damaged_runs import ClassCost, cost_of, over_limits

CHEAP = ClassCost(name="x", wall_s=1.0, cpu_s=1.0, peak_bytes=60_000_000, output_bytes=300_000, changed=())


def test_the_cost_of_a_class_is_of_its_run(tmp_path: Path) -> None:
    cost = cost_of("empty file", tmp_path)

    assert cost.name == "empty file"
    assert cost.changed == ()
    assert cost.cpu_s > 0
    assert cost.peak_bytes > 20e6  # a process starts with the peak of the one that starts it
    assert (tmp_path / "report.json").stat().st_size < cost.output_bytes


def test_each_limit_is_looked_at() -> None:
    assert over_limits(CHEAP) == []
    assert over_limits(replace(CHEAP, wall_s=31.0)) == ["31.0 s"]
    assert over_limits(replace(CHEAP, peak_bytes=2_000_000_000)) == ["2000 MB of memory"]
    assert over_limits(replace(CHEAP, output_bytes=65_000_000)) == ["65.0 MB of output"]
    assert over_limits(replace(CHEAP, changed=("run/rank8.json",))) == ["changed: run/rank8.json"]
