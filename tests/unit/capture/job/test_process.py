"""The identity of a process in its job."""

from __future__ import annotations

import re

import pytest

from tracekit.capture.job.process import identify


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 0, 1)),
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (5, 1, 8)),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 3, 4)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, (2, 2, 4)),
        ({"RANK": "not a number"}, (0, 0, 1)),
    ],
)
def test_without_a_process_group_the_launcher_says_which_rank_this_is(
    environment: dict[str, str], expected: tuple[int, int, int]
) -> None:
    identity = identify(environment)

    assert (identity.rank, identity.local_rank, identity.world_size) == expected
    assert re.fullmatch(r"[0-9a-f]{16}", identity.host_id)


def test_until_the_ranks_have_agreed_the_attempt_counts_restarts() -> None:
    assert identify({"TORCHELASTIC_RESTART_COUNT": "2"}).attempt == 2
    assert identify({}).attempt == 0
