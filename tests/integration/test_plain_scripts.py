"""Scripts as tutorials have them, with no tracekit call but the decorator: analysed by the command, as a user would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, notes_of

SCRIPTS = Path(__file__).with_name("plain_scripts")
STEPS = 3


@pytest.mark.parametrize(
    ("script", "strategy", "parallelism", "collectives_a_step"),
    [
        ("ddp", "ddp", "dp", 2),  # a bucket and the loss
        ("ddp_mesh", "ddp", "dp", 1),
        ("manual_data_parallel", "manual_dp", "dp", 9),  # eight parameters and the loss
        ("tensor_parallel_columns", "tp", "tp", 3),  # a gather a layer, one gradient that goes on
        ("inference_rows", "tp", "tp", 2),
    ],
)
def test_a_script_with_the_decorator_alone(
    torchrun: Launch,
    launch: Launch,
    tmp_path: Path,
    script: str,
    strategy: str,
    parallelism: str,
    collectives_a_step: int,
) -> None:
    torchrun(SCRIPTS / f"{script}.py", tmp_path, anew=True)
    result: dict[str, Any] = json.loads(launch("-m", "tracekit", "analyze", tmp_path, "--json").stdout)

    assert result["run"]["strategies"] == [strategy]
    assert [(group["parallelism"], group["ranks"]) for group in result["groups"]] == [(parallelism, "world")]
    expected = STEPS * collectives_a_step
    assert [(row["collectives"], row["joined"]) for row in result["joins"]] == [(expected, expected)] * 2
    assert notes_of(result, "unlinked", "capture") == []
    by_hand = [finding for finding in result["findings"] if "averaged by hand" in finding["text"]]
    assert len(by_hand) == (strategy == "manual_dp")
    for finding in by_hand:
        assert "8 all-reduces a step, one a parameter, after the backward pass" in finding["text"]
        assert "DistributedDataParallel" in finding["action"]
        assert (finding["evidence"]["all_reduces_per_step"], finding["evidence"]["in_backward"]) == (8, 0)
        assert finding["saving_ns"] is None
    if script != "ddp_mesh" and script != "ddp":  # every collective of theirs blocks
        overlapped = sum(row["overlapped_comm_ns"] for row in result["ranks"])
        assert overlapped <= 0.02 * sum(row["comm_ns"] for row in result["ranks"])
