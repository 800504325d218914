"""Who a process says it is, and how the run gets one name on all ranks."""

from __future__ import annotations

import re

import pytest

from tracekit.capture import process
from tracekit.capture.process import await_run_id, identify, look_up_run_id, offer_run_id


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


def test_the_attempt_counts_elastic_restarts() -> None:
    assert identify({"TORCHELASTIC_RESTART_COUNT": "2"}).attempt == 2
    assert identify({}).attempt == 0


def test_rank_0_names_the_run_and_the_others_read_it() -> None:
    store = pytest.importorskip("torch.distributed").HashStore()
    first, second = identify({"RANK": "0"}), identify({"RANK": "1"})

    assert offer_run_id(store, second, {}) is None
    assert look_up_run_id(store) is None
    run_id = offer_run_id(store, first, {})

    assert run_id is not None
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", run_id)
    assert await_run_id(store, second) == (run_id, True)


def test_an_elastic_job_has_one_name_over_its_restarts() -> None:
    environment = {"TORCHELASTIC_RUN_ID": "my job/7"}

    assert offer_run_id(None, identify({"RANK": "1"}), environment) == "my-job-7"
    assert offer_run_id(None, identify({}), {"TORCHELASTIC_RUN_ID": "none"}) != "none"


def test_a_rank_that_learns_no_name_in_time_goes_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "RUN_ID_WAIT_S", 0.02)
    store = pytest.importorskip("torch.distributed").HashStore()

    for reachable in (store, None):
        run_id, known = await_run_id(reachable, identify({"RANK": "1"}))
        assert not known
        assert re.fullmatch(r"unknown-[A-Za-z0-9_-]+-\d+", run_id)
