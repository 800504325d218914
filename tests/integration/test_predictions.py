"""What the removal of a planted delay would save: against the delay itself, and against training without it.

Compute sleeps, so that what else the machine does can only make a run longer, never the planted delay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, result_of

pytestmark = pytest.mark.alone

PROBES = Path(__file__).parents[2] / "probes"
ON_CPU = ("--device", "cpu", "--sleep-compute")
PLANTED_NS = 100_000_000


def saving_at_rank(whatif: dict[str, Any], rank: int) -> dict[str, Any]:
    (change,) = [change for change in whatif["fix"] if change["rank"] == rank]
    return change


def test_a_slow_rank_at_its_peers_median_saves_about_what_was_planted(torchrun: Launch, tmp_path: Path) -> None:
    """GIVEN a rank that sleeps 100 ms longer a step THEN the saving is that, or less where its peer was slowed too.

    Ranks on the same cores slow each other. How exact a saving is where nothing does, unit tests say.
    """
    out = tmp_path / "run"
    torchrun(PROBES / "ddp.py", *ON_CPU, "--slow-rank", "1", "--delay-ms", "100", "--out", out)

    whatif = result_of(out)["whatif"]

    change = saving_at_rank(whatif, 1)
    assert 0.4 * PLANTED_NS < change["saves_ns_per_step"] < 1.1 * PLANTED_NS + 2 * change["error_ns"]
    assert abs(whatif["replay_error"]) < 0.05


def test_a_pipeline_with_balanced_stages_takes_as_long_as_predicted(torchrun: Launch, tmp_path: Path) -> None:
    """GIVEN one of four stages that takes 16 ms, the others 8 THEN the step predicted for balanced stages is that of
    10 ms each. No stage is compared with the others, as they have other layers.
    """

    def whatif(name: str, *options: str) -> dict[str, Any]:
        out = tmp_path / name
        torchrun(PROBES / "pipeline.py", *ON_CPU, "--out", out, *options, ranks=4)
        result: dict[str, Any] = result_of(out)["whatif"]
        return result

    slow, balanced = whatif("slow", "--slow-stage", "1", "--sleep-ms", "8"), whatif("balanced", "--sleep-ms", "10")

    assert [change for change in slow["fix"] if change["remedy"] == "ranks"] == []
    (change,) = [change for change in slow["fix"] if change["remedy"] == "stages"]
    predicted_ns = slow["measured_step_ns"] - change["saves_ns_per_step"]
    assert predicted_ns == pytest.approx(balanced["measured_step_ns"], rel=0.2)
    assert slow["measured_step_ns"] > 1.1 * balanced["measured_step_ns"]
    assert abs(slow["replay_error"]) < 0.05
