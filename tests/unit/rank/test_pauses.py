"""Checkpoints, evaluation and logging are phases of a step, in any tool's trace that shows them. Times are us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rank.test_phases import STEP, Training
from tracekit.model.spans import (
    DATA_SPAN,
    EVALUATION_SPAN,
    NO_GRAD_SPAN,
    checkpoint_span,
    logging_span,
)

SAVE = checkpoint_span("save", "torch.save")
LOG = logging_span("Logger.handle")


def trained() -> Training:
    """A step: forward 0-10, backward 10-20, optimizer 20-25."""
    return Training().forward(5).node(10, 10).label(STEP, 20, 5)


def test_pauses_are_phases_after_which_the_phase_around_them_goes_on(tmp_path: Path) -> None:
    trace = trained().label(SAVE, 2, 4).label(LOG, 12, 3).label(EVALUATION_SPAN, 40, 20)
    assert trace.phases(tmp_path) == {
        "forward": 6,
        "backward": 7,
        "optimizer": 5,
        "evaluation": 20,
        "checkpoint": 4,
        "logging": 3,
        "other": 55,
    }


def test_an_evaluation_is_the_block_around_its_forwards_and_what_lies_between_its_blocks(tmp_path: Path) -> None:
    """GIVEN two blocks without gradients, with a load between them THEN all is evaluation, but for a save in it.

    A block without a forward, such as 80-90, is none. The forwards are none of the training.
    """
    trace = trained().label(NO_GRAD_SPAN, 30, 10).label(EVALUATION_SPAN, 33, 4)
    trace.label("DistributedDataParallel.forward", 33, 4).label(DATA_SPAN, 42, 3)
    trace.label(NO_GRAD_SPAN, 50, 10).label(EVALUATION_SPAN, 52, 3).label(SAVE, 56, 2).label(LOG, 58, 1)
    actual = trace.label(NO_GRAD_SPAN, 80, 10).phases(tmp_path)

    assert actual == {"forward": 10, "backward": 10, "optimizer": 5, "evaluation": 28, "checkpoint": 2, "other": 45}


def test_training_between_two_forwards_ends_an_evaluation(tmp_path: Path) -> None:
    trace = Training().label(EVALUATION_SPAN, 0, 4).forward(10).node(20, 5).label(EVALUATION_SPAN, 40, 5)
    assert trace.phases(tmp_path) == {"forward": 16, "backward": 75, "evaluation": 9}


@pytest.mark.parametrize(
    ("name", "category", "phase"),
    [
        ("## validation ##", "user_annotation", "evaluation"),
        ("evaluate", "user_annotation", "evaluation"),
        ("[pl][profile][Strategy]DDPStrategy.validation_step", "user_annotation", "evaluation"),
        ("evaluate_expression", "user_annotation", "other"),
        ("/x/torch/serialization.py(943): save", "python_function", "checkpoint"),
        ("/x/torch/serialization.py(1322): load", "python_function", "checkpoint"),
        ("/x/torch/distributed/checkpoint/state_dict_saver.py(164): async_save", "python_function", "checkpoint"),
        ("<built-in function print>", "python_function", "logging"),
        ("/x/torch/utils/tensorboard/writer.py(343): add_scalar", "python_function", "logging"),
        ("logging/__init__.py(1636): handle", "python_function", "logging"),
        ("wandb/sdk/wandb_run.py(1832): log", "python_function", "logging"),
        ("mylogging/__init__.py(1): handle", "python_function", "other"),
        ("logger.py(1): handle", "python_function", "other"),
        ("aten::item", "cpu_op", "other"),
    ],
)
def test_traces_of_other_tools_show_what_they_name(tmp_path: Path, name: str, category: str, phase: str) -> None:
    trace = trained()
    trace.event(name, category, 50, 10)
    phases = trace.phases(tmp_path)

    assert phases.pop("other") == (75 if phase == "other" else 65)
    assert phases == {"forward": 10, "backward": 10, "optimizer": 5} | ({} if phase == "other" else {phase: 10})


def test_files_that_a_data_loader_loads_are_data(tmp_path: Path) -> None:
    trace = trained().label(DATA_SPAN, 50, 20).label(checkpoint_span("load", "torch.load"), 52, 5)
    assert trace.phases(tmp_path)["data"] == 20


def test_what_runs_on_another_thread_holds_nobody_up(tmp_path: Path) -> None:
    trace = trained().label(SAVE, 30, 50, thread=77)
    assert "checkpoint" not in trace.phases(tmp_path)
