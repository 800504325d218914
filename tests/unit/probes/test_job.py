"""Which device a probe trains on, and what it says of that."""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

import pytest

from tests.components import require_module
from tests.places import PROBES

torch = require_module("torch")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The shared part of the probes, for the second of two processes of a host."""
    monkeypatch.syspath_prepend(str(PROBES))
    for name, value in {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    return importlib.import_module("job")


def give_gpus(count: int, job: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Have the host have `count` GPUs; return the list of those that become the current one."""
    current: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: f"GPU {place} of the test")
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(job, "cycles_per_ms", lambda: current.append("measured"))
    return current


def options(device: str = "auto") -> argparse.Namespace:
    return argparse.Namespace(device=device)


@pytest.mark.parametrize("count", [2, 8])
def test_each_process_has_the_gpu_of_its_place(
    count: int, job: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """THEN the clock is measured after the GPU is the current one, so that no training step does it."""
    current = give_gpus(count, job, monkeypatch)

    assert job.choose_device(options()) == torch.device("cuda", 1)
    assert current == [torch.device("cuda", 1), "measured"]
    assert capsys.readouterr().out == "Training on cuda: a GPU for each process, GPU 1 of the test\n"


@pytest.mark.parametrize(
    ("count", "device", "why"),
    [(0, "auto", "no CUDA device"), (1, "auto", "1 GPU for 2 processes"), (2, "cpu", "as asked for")],
)
def test_without_enough_gpus_or_on_request_it_is_the_cpu(
    count: int,
    device: str,
    why: str,
    job: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    current = give_gpus(count, job, monkeypatch)

    assert job.choose_device(options(device)) == torch.device("cpu")
    assert current == []
    assert capsys.readouterr().out == f"Training on cpu: {why}\n"


def test_only_the_first_process_of_the_job_says_so(
    job: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_gpus(0, job, monkeypatch)
    monkeypatch.setenv("RANK", "1")

    job.choose_device(options())

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("count", "backend"), [(2, "nccl"), (0, "gloo")])
def test_the_process_group_is_of_the_device(
    count: int, backend: str, job: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_gpus(count, job, monkeypatch)
    joined: list[str] = []
    monkeypatch.setattr(job.dist, "init_process_group", joined.append)
    monkeypatch.setattr(job.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(job.dist, "get_world_size", lambda: 2)

    process = job.job(options()).__enter__()

    assert joined == [backend]
    assert process == job.Job(rank=0, world_size=2, device=job.choose_device(options()))


@pytest.mark.parametrize("patience_ms", [5000, 2])
def test_a_rank_leaves_when_nothing_holds_its_last_tensor_or_patience_ends(
    patience_ms: int, job: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a thread that lets go of the tensor of a collective after three waits."""
    held: list[object] = []
    waits: list[float] = []

    class Event:
        def wait(self, seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                held.clear()

    monkeypatch.setattr(job.dist, "all_reduce", held.append)
    monkeypatch.setattr(job.threading, "Event", Event)
    monkeypatch.setattr(job, "PATIENCE_MS", patience_ms)

    job.leave_together(torch.device("cpu"))

    assert len(waits) == min(3, patience_ms)


def test_a_probe_without_its_package_ends_with_one_line(
    job: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["probes/zero.py", "--stage", "3"])

    job.require_package("json")
    with pytest.raises(SystemExit) as ended:
        job.require_package("no_such_package")

    assert not ended.value.code
    assert capsys.readouterr().out == "Skipped: zero.py needs no_such_package; pip install no_such_package\n"
