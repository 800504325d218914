"""What probes plant as compute is time of the device on a GPU, and what models a late host is time of the host.

Each probe runs on a stand-in for GPUs (cuda_stand_in.py), which notes every sleep and every tensor left on the CPU.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch
from tests.places import PROBE_PARTS, PROBES

STAND_IN = Path(__file__).with_name("cuda_stand_in.py")
STEPS = 2
NOT_ON_THE_STAND_IN = {"accelerate_loop", "compiled", "lightning_trainer", "transformers_trainer"}
"""Frameworks move model and data to the device themselves, and compilation traces: both ask more than it knows."""
MOVED_BY_DEEPSPEED = ["LayerNorm, a module", "Linear, a module"]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A probe's command, and the milliseconds a rank that its steps plant; ranks that are not named have none."""

    probe: str
    arguments: tuple[str, ...]
    device_ms: dict[int, float]
    host_ms: dict[int, float]
    ranks: int = 2

    @property
    def name(self) -> str:
        return "-".join([self.probe, *(argument for argument in self.arguments if argument.replace("_", "").isalpha())])


def planted(probe: str, *arguments: str, ranks: int = 2, **where: dict[int, float]) -> Planted:
    steps = () if probe == "straggler" else ("--steps", str(STEPS))
    device_ms, host_ms = where.get("device_ms", {}), where.get("host_ms", {})
    return Planted(probe=probe, arguments=(*arguments, *steps), device_ms=device_ms, host_ms=host_ms, ranks=ranks)


SLOW_RANK = ("--slow-rank", "1", "--delay-ms", "20")
STRAGGLER_STEPS = 6  # with --recorded 1
STRAGGLER = ("--recorded", "1", "--rank", "1", "--delay-ms", "20", "--cause")
TOKENS, TOKEN_MS = 480, 0.02  # of both ranks; forward, and twice that backward
PARTS_OF_A_BATCH, BLOCKS, RECOMPUTED, BLOCK_MS = 3, 4, 2, 2

PLANTED = [
    planted("data_parallel", ranks=1),  # nothing, but its model has to be on the GPU, too
    planted("ddp", *SLOW_RANK, device_ms={1: STEPS * 20}),
    planted("elastic", "--sleep-compute", device_ms=dict.fromkeys((0, 1), STEPS * 4 * 3 * 10)),
    planted("fsdp", *SLOW_RANK, device_ms={1: STEPS * 20}),
    planted("zero", *SLOW_RANK, device_ms={1: STEPS * 20}),
    planted("tensor", *SLOW_RANK, device_ms={1: STEPS * 20}),
    # Twelve layers of 2 ms, forward and twice that backward.
    planted("manual_data_parallel", "--sleep-compute", device_ms=dict.fromkeys((0, 1), STEPS * 12 * 3 * 2)),
    planted("model_parallel", "--sleep-compute", device_ms=dict.fromkeys((0, 1), STEPS * 4 * 3 * 4)),
    # A layer of attention, and with the ring one for each of two hops.
    planted("context", "--sleep-compute", device_ms=dict.fromkeys((0, 1), STEPS * 3 * 3)),
    planted("ring_attention", "--sleep-compute", device_ms=dict.fromkeys((0, 1), STEPS * 2 * 3 * 3)),
    planted("ddp_settings", "--sleep-compute", device_ms=dict.fromkeys((0, 1), STEPS * 2 * 3 * 4)),
    planted(
        "expert",
        *("--sleep-compute", "--hot-expert", "1"),
        device_ms={0: STEPS * TOKENS / 4 * 3 * TOKEN_MS, 1: STEPS * TOKENS * 3 / 4 * 3 * TOKEN_MS},
    ),
    # Eight microbatches, each with a forward and two halves of a backward.
    planted("pipeline", "--schedule", "manual", "--slow-stage", "1", device_ms={1: STEPS * 8 * 3 * 8}),
    # Four blocks of 10 ms on one of four ranks.
    planted("hybrid", "--slow-rank", "1", ranks=4, device_ms={1: STEPS * 4 * 3 * 10}),
    planted("parameter_server", "--slow-server-ms", "20", device_ms={0: STEPS * 20, 1: STEPS * 10}),
    planted(
        "phases",
        *("--sleep-compute", "--slow-loader-ms", "48"),
        device_ms=dict.fromkeys((0, 1), STEPS * PARTS_OF_A_BATCH * (3 * BLOCKS + RECOMPUTED) * BLOCK_MS),
        host_ms=dict.fromkeys((0, 1), STEPS * 48),
    ),
    planted(
        "checkpointing",
        *("--sleep-compute", "--slow-disk-ms", "78"),
        device_ms=dict.fromkeys((0, 1), STEPS * 4 * 3 * 2),
        host_ms={0: STEPS * 78},
    ),
    planted("straggler", *STRAGGLER, "compute", device_ms={1: STRAGGLER_STEPS * 20}),
    planted("straggler", *STRAGGLER, "more_work", device_ms={1: STRAGGLER_STEPS * 20}),
    planted("straggler", *STRAGGLER, "host", host_ms={1: STRAGGLER_STEPS * 20}),
    planted("straggler", *STRAGGLER, "data", host_ms={1: STRAGGLER_STEPS * 20}),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in PLANTED])
def test_compute_is_time_of_the_device_and_lateness_of_the_host(
    case: Planted, torchrun: Launch, tmp_path: Path
) -> None:
    """GIVEN a GPU for each rank THEN exactly the planted time is spent there, and the model is there, too."""
    folder = tmp_path / "slept"
    folder.mkdir()

    script = PROBES / f"{case.probe}.py"
    torchrun(STAND_IN, folder, script, *case.arguments, "--out", tmp_path / "run", ranks=case.ranks)

    for rank in range(case.ranks):
        slept: dict[str, Any] = json.loads((folder / f"rank-{rank}.json").read_text())
        assert sum(slept["device_ms"]) == pytest.approx(case.device_ms.get(rank, 0), abs=0.001)
        assert sum(slept["host_ms"]) == pytest.approx(case.host_ms.get(rank, 0), abs=0.001)
        assert slept["left_on_cpu"] == (MOVED_BY_DEEPSPEED if case.probe == "zero" else [])


def test_every_probe_is_tested() -> None:
    scripts = {script.stem for script in PROBES.glob("*.py")} - PROBE_PARTS
    assert scripts == {case.probe for case in PLANTED} | NOT_ON_THE_STAND_IN


def test_every_probe_with_an_option_that_delays_has_a_case_on_the_device() -> None:
    offers = re.compile(r'"--(?:delay-ms|sleep-compute|slow-[\w-]+)"|add_slow_rank\(|from attention import')
    delaying = {script.stem for script in PROBES.glob("*.py") if offers.search(script.read_text())}

    assert delaying - PROBE_PARTS == {case.probe for case in PLANTED if case.device_ms} | NOT_ON_THE_STAND_IN


def test_only_one_module_of_the_probes_sleeps() -> None:
    """A probe with a sleep of its own would sleep on the host, also where it models compute."""
    assert [script.name for script in PROBES.glob("*.py") if "time.sleep(" in script.read_text()] == ["sleeping.py"]
