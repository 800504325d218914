"""What the removal of a planted delay would save, against the same training without it. Compute sleeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, result_of

PROBES = Path(__file__).parents[2] / "probes"


@pytest.mark.parametrize(
    ("probe", "ranks", "planted", "slow_rank"),
    [
        ("ddp", 2, ("--slow-rank", "1", "--delay-ms", "100"), 1),
        ("pipeline", 4, ("--slow-stage", "1"), 1),
    ],
)
def test_a_step_without_the_delay_takes_as_long_as_predicted(
    torchrun: Launch, tmp_path: Path, probe: str, ranks: int, planted: tuple[str, ...], slow_rank: int
) -> None:
    def whatif(name: str, *options: str) -> Any:
        torchrun(PROBES / f"{probe}.py", "--sleep-compute", "--out", tmp_path / name, *options, ranks=ranks)
        return result_of(tmp_path / name)["whatif"]

    # On an idle machine predictions are within a twentieth; what else it does for a moment comes to one run of the two.
    for attempt in range(3):
        delayed, usual = whatif(f"delayed-{attempt}", *planted), whatif(f"usual-{attempt}")
        fixes = [fix for fix in delayed["fix"] if fix["rank"] == slow_rank]
        predicted_ns = [delayed["measured_step_ns"] - fix["saves_ns_per_step"] for fix in fixes]
        if predicted_ns == [pytest.approx(usual["measured_step_ns"], rel=0.15)]:
            break

    assert predicted_ns == [pytest.approx(usual["measured_step_ns"], rel=0.15)]
    assert delayed["measured_step_ns"] > 1.3 * usual["measured_step_ns"]
    assert abs(delayed["replay_error"]) < 0.05
