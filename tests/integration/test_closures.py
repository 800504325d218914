"""Optimizers that call closures, compiled modules, compiled autograd, a gradient scaler: each phase is where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.phase_truth import assert_marks_are_their_phases
from tests.integration.recorded import Launch, without_metadata
from tracekit.trace_processor import TraceProcessor

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def out(launch_forked: Launch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("closures")
    result = launch_forked(HERE / "closures_worker.py", out, ranks=0, torn_down=False)
    assert result.returncode == 0, result.stderr
    return out


@pytest.mark.parametrize("plain", [False, True], ids=["capture", "torch.profiler alone"])
@pytest.mark.parametrize(
    "scenario", ["with_lbfgs", "with_a_compiled_module", "with_compiled_autograd", "with_a_scaler"]
)
def test_forward_backward_and_optimizer_are_where_training_marked_them(
    out: Path, scenario: str, plain: bool, trace_processor: TraceProcessor, tmp_path: Path
) -> None:
    run = without_metadata(out / scenario, tmp_path / "plain") if plain else out / scenario
    # Graphs that compiled autograd makes have no spans of autograd functions.
    backward = {"backward": "Torch-Compiled Region: !*"} if scenario == "with_compiled_autograd" else {}
    assert_marks_are_their_phases(trace_processor, run, tmp_path / "merged", steps=3, **backward)
