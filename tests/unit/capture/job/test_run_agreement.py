"""How all ranks agree on the name of the run and the number of the attempt, in a new store and in one that is older."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.components import require_module
from tests.unit.capture.job.elastic import LAUNCH, attempt_of, leave_progress
from tracekit.capture.job import run_agreement
from tracekit.capture.job.elastic_launch import ElasticLaunch
from tracekit.capture.job.process import identify
from tracekit.capture.job.run_agreement import (
    AgreedRun,
    AgreedStep,
    BoundedStore,
    await_run,
    is_of_this_attempt,
    look_up_step,
    new_run,
    publish_run,
    publish_step,
    read_run,
)

RANK_1 = identify({"RANK": "1", "WORLD_SIZE": "2"})


@pytest.fixture
def new_store() -> Iterator[Callable[[], BoundedStore]]:
    opened: list[BoundedStore] = []

    def make() -> BoundedStore:
        opened.append(BoundedStore(require_module("torch.distributed").HashStore()))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(new_store: Callable[[], BoundedStore]) -> BoundedStore:
    return new_store()


def publish(store: BoundedStore | None, path: Path, launch: ElasticLaunch | None, number: int = 0) -> AgreedRun:
    """What rank 0 does when it has joined."""
    run = new_run(path, launch, number)
    agreed = publish_run(store, run, number, rank=0, elastic=launch is not None)
    assert agreed is not None
    return agreed


def started_now(launch: ElasticLaunch) -> ElasticLaunch:
    return replace(launch, start_ns=time.time_ns())


def test_rank_0_names_the_run_and_the_others_read_it(store: BoundedStore, tmp_path: Path) -> None:
    assert store.ask(read_run(0), 1.0) is None

    run = publish(store, tmp_path, None)

    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", run.run_id)
    assert await_run(store, RANK_1, 0, None) == (run, True)


def test_the_first_rank_to_come_names_the_run_if_rank_0_may_never_come(store: BoundedStore, tmp_path: Path) -> None:
    runs = [
        publish_run(store, new_run(tmp_path, None, 0, any_rank=True), 0, rank, elastic=False, any_rank=True)
        for rank in (1, 0, 2)
    ]

    assert len({run.run_id for run in runs if run is not None}) == 1
    assert None not in runs


@pytest.mark.parametrize(("elastic", "slug"), [("my job/7", "my-job-7"), ("x" * 99, "x" * 38)])
def test_two_launches_under_one_elastic_id_are_two_runs(elastic: str, slug: str, tmp_path: Path) -> None:
    first, second = (new_run(tmp_path, replace(LAUNCH, elastic_id=elastic, agent=agent), 0) for agent in "ab")

    assert first.run_id != second.run_id
    assert re.fullmatch(rf"{slug}-\d{{8}}T\d{{6}}Z-[0-9a-f]{{8}}", first.run_id)
    assert len(first.run_id) <= 64


@pytest.mark.parametrize("restarts", [(0, 1, 2), (0, 0, 0), (0, 0, 1)], ids=["failures", "membership", "both"])
def test_attempts_are_one_run_in_a_store_that_outlives_them(
    store: BoundedStore, tmp_path: Path, restarts: tuple[int, ...]
) -> None:
    runs = [
        publish(store, tmp_path, attempt_of(LAUNCH, number, at_s=10 * number, restarts=count))
        for number, count in enumerate(restarts)
    ]

    assert len({run.run_id for run in runs}) == 1
    assert [run.attempt for run in runs] == [0, 1, 2]
    assert [run.is_first for run in runs] == [True, False, False]


@pytest.mark.parametrize("restarts", [(0, 1, 2), (0, 0, 0), (0, 0, 1)], ids=["failures", "membership", "both"])
def test_attempts_are_one_run_where_each_has_a_fresh_store(
    new_store: Callable[[], BoundedStore], tmp_path: Path, restarts: tuple[int, ...]
) -> None:
    runs = []
    for number, count in enumerate(restarts):
        launch = attempt_of(LAUNCH, number, at_s=10 * number, restarts=count)
        runs.append(publish(new_store(), tmp_path, launch))
        leave_progress(tmp_path, runs[-1].run_id, launch, runs[-1].attempt, last_sign_s=10 * number + 8)

    assert len({run.run_id for run in runs}) == 1
    assert [run.attempt for run in runs] == [0, 1, 2]


def test_without_store_and_disk_the_agent_makes_the_same_name_again(tmp_path: Path) -> None:
    first = new_run(tmp_path / "a", LAUNCH, 0)
    second = new_run(tmp_path / "b", attempt_of(LAUNCH, 1, at_s=9, restarts=1), 0)

    assert (first.run_id, first.attempt) == (second.run_id, 0)
    assert second.attempt == 1


def test_a_second_program_of_one_worker_makes_another_run(tmp_path: Path) -> None:
    first = new_run(tmp_path, LAUNCH, 0)
    leave_progress(tmp_path, first.run_id, LAUNCH, attempt=0, last_sign_s=3)

    second = new_run(tmp_path, LAUNCH, 0)

    assert second.run_id != first.run_id
    assert second.attempt == 0


def test_what_an_earlier_attempt_published_does_not_count(store: BoundedStore, tmp_path: Path) -> None:
    """GIVEN a store that outlived an attempt WHEN a rank comes before rank 0 THEN it waits for what rank 0 says."""
    old = publish(store, tmp_path, started_now(LAUNCH))
    restarted = started_now(replace(LAUNCH, restarts=1, worker="worker-1"))

    assert not is_of_this_attempt(store.ask(read_run(0), 1.0), restarted)
    new = publish(store, tmp_path, restarted)

    assert await_run(store, RANK_1, 0, restarted) == (new, True)
    assert (new.run_id, new.attempt) == (old.run_id, 1)


def test_a_rank_that_learns_no_run_name_in_time_makes_one(store: BoundedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_agreement, "RUN_WAIT_S", 0.02)

    for reachable in (store, None):
        run, known = await_run(reachable, RANK_1, 0, None)
        assert not known
        assert re.fullmatch(r"unknown-[A-Za-z0-9_-]+-\d+", run.run_id)


def test_the_first_step_of_each_attempt_is_published_for_itself(store: BoundedStore) -> None:
    first, second = (AgreedRun(run_id="run", attempt=attempt) for attempt in range(2))
    step = AgreedStep(first_step=12, source="optimizer")

    publish_step(store, second, 0, step)

    assert look_up_step(store, second, 0) == step
    assert look_up_step(store, first, 0) is None
