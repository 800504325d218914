"""Two ranks of each framework over Gloo: its callback records steps of the optimizer, micro-batches and all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.integration.phase_truth import assert_marks_are_their_phases
from tests.integration.recorded import Job, Launch, without_metadata
from tracekit.trace_processor import TraceProcessor

HERE = Path(__file__).parent
STEPS, MICRO_BATCHES = 8, 2


@pytest.fixture(scope="module")
def job(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job.record(torchrun, HERE / "integrations_worker.py", tmp_path_factory.mktemp("integrations"))


@pytest.fixture(params=["accelerate", "lightning", "transformers"])
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_framework_trained_to_its_end(job: Job, framework: str) -> None:
    assert [facts[framework] for facts in job.facts] == [STEPS, STEPS]


def test_both_ranks_record_the_same_steps_of_one_run(job: Job, framework: str) -> None:
    first, second = job.metadata(framework)

    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["run_id"] == second["run_id"]
    assert [step["step"] for step in first["steps"]] == [step["step"] for step in second["steps"]] == [4, 5, 6]
    assert [metadata["window"]["partial"] for metadata in (first, second)] == [False, False]


def test_a_step_is_a_step_of_the_optimizer_with_all_its_micro_batches(job: Job, framework: str) -> None:
    for trace in job.traces(framework):
        names = Counter(event.get("name", "").partition("#")[0] for event in trace["traceEvents"])
        assert names["Optimizer.step"] == 3
        assert names["DistributedDataParallel.forward"] == 3 * MICRO_BATCHES
        buckets = [bucket for module in trace["tracekit"]["ddp"] for bucket in module["buckets"]]
        assert buckets
        reductions = [record for record in trace["tracekit"]["collectives"] if record["kind"] == "all_reduce"]
        assert len(reductions) >= 3 * len(buckets)


def test_the_analysis_knows_what_the_framework_does(job: Job, framework: str) -> None:
    result = job.result(framework)

    assert result["run"]["strategies"] == ["ddp"]
    assert [(row["rank"], row["steps"]) for row in result["ranks"]] == [(0, 3), (1, 3)]
    (group,) = [group for group in result["groups"] if group["parallelism"] is not None]
    assert (group["parallelism"], group["ranks"]) == ("dp", "world")
    reductions = [row for row in result["communication"] if (row["kind"], row["phase"]) == ("all_reduce", "backward")]
    assert {row["group"] for row in reductions} == {group["id"]}


@pytest.mark.parametrize("plain", [False, True], ids=["capture", "torch.profiler alone"])
def test_forward_backward_and_optimizer_are_where_training_marked_them(
    job: Job, framework: str, plain: bool, trace_processor: TraceProcessor, tmp_path: Path
) -> None:
    """GIVEN Lightning, which runs the last micro-batch within `Optimizer.step`, and frameworks that do not."""
    run = job.out / framework
    run = without_metadata(run, tmp_path / "plain") if plain else run
    assert_marks_are_their_phases(trace_processor, run, tmp_path / "merged", steps=3)


def test_the_callback_is_one_of_the_lightning_that_training_uses(launch_forked: Launch, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pytorch_lightning, sys, tracekit\n"
        "callback = tracekit.integrations.LightningCallback('runs')\n"
        "assert isinstance(callback, pytorch_lightning.Callback)\n"
        "assert 'lightning.pytorch' not in sys.modules\n"
    )
    result = launch_forked(script, ranks=0)
    assert result.returncode == 0, result.stderr
