"""The identity of a process, and how all ranks agree on the name of the run."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.components import require_module
from tracekit.capture.job import process
from tracekit.capture.job.process import await_run_id, identify, look_up_run_id, publish_run_id
from tracekit.capture.job.store import BoundedStore


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


@pytest.fixture
def store() -> Iterator[BoundedStore]:
    bounded = BoundedStore(require_module("torch.distributed").HashStore())
    yield bounded
    bounded.close()


def test_rank_0_names_the_run_and_the_others_read_it(store: BoundedStore) -> None:
    first, second = identify({"RANK": "0"}), identify({"RANK": "1"})

    assert publish_run_id(store, second, 0, {}) is None
    assert look_up_run_id(store, 0) is None
    run_id = publish_run_id(store, first, 0, {})

    assert run_id is not None
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", run_id)
    assert await_run_id(store, second, 0) == (run_id, True)


def test_the_first_rank_to_come_names_the_run_if_rank_0_may_never_come(store: BoundedStore) -> None:
    server, trainer, late = (identify({"RANK": rank}) for rank in "012")

    run_id = publish_run_id(store, trainer, 0, {}, any_rank=True)

    assert run_id is not None
    assert [publish_run_id(store, worker, 0, {}, any_rank=True) for worker in (server, late)] == [run_id, run_id]


@pytest.mark.parametrize("elastic", ["none", "f5556516-12a2-494c-8b43-06f4c499993d"])
def test_a_meaningless_elastic_id_is_left_out(elastic: str) -> None:
    run_id = publish_run_id(None, identify({}), 0, {"TORCHELASTIC_RUN_ID": elastic})

    assert run_id is not None
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", run_id)


@pytest.mark.parametrize(("elastic", "slug"), [("my job/7", "my-job-7"), ("x" * 99, "x" * 38)])
def test_two_launches_under_one_elastic_id_are_two_runs(elastic: str, slug: str) -> None:
    environment = {"TORCHELASTIC_RUN_ID": elastic}

    first, second = (publish_run_id(None, identify({}), 0, environment) for _ in range(2))

    assert first is not None
    assert first != second
    assert re.fullmatch(rf"{slug}-\d{{8}}T\d{{6}}Z-[0-9a-f]{{8}}", first)
    assert len(first) <= 64


def test_an_elastic_job_has_one_name_over_its_restarts_while_its_store_lives(store: BoundedStore) -> None:
    environment = {"TORCHELASTIC_RUN_ID": "myjob"}
    attempts = [identify({"TORCHELASTIC_RESTART_COUNT": str(count)}) for count in range(3)]

    names = [publish_run_id(store, attempt, 0, environment) for attempt in attempts]

    assert len(set(names)) == 1


def test_each_probe_of_a_process_has_its_own_run(store: BoundedStore) -> None:
    first, second = (publish_run_id(store, identify({}), number, {}) for number in range(2))

    assert first != second
    assert [look_up_run_id(store, number) for number in range(2)] == [first, second]


def test_a_rank_that_learns_no_run_name_in_time_makes_one(store: BoundedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "RUN_ID_WAIT_S", 0.02)

    for reachable in (store, None):
        run_id, known = await_run_id(reachable, identify({"RANK": "1"}), 0)
        assert not known
        assert re.fullmatch(r"unknown-[A-Za-z0-9_-]+-\d+", run_id)
