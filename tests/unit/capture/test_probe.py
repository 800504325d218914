"""The probe in one process: what counts as a step, what is recorded, and that the loop does not change."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from textwrap import dedent
from typing import Any

import pytest

from tracekit.capture.hooks.patching import CaptureWarning
from tracekit.capture.probe import probe
from tracekit.capture.probe_object import Probe

# A single process gets no warning.
pytestmark = pytest.mark.filterwarnings("error::tracekit.capture.hooks.patching.CaptureWarning")


def names(trace: dict[str, Any]) -> set[str]:
    return {event.get("name", "") for event in trace["traceEvents"]}


def test_a_window_is_written_when_the_call_after_it_begins(runs: Any, work: Callable[[], float]) -> None:
    step = probe(path=runs.path)(work)

    for _ in range(7):
        assert step() == 4.0
    assert runs.files() == []
    step()

    assert runs.steps() == [[4, 5, 6]]
    assert sorted(file.name for file in runs.files()) == ["rank-000000.json.gz", "rank-000000.manifest.json"]


def test_a_step_ends_where_the_next_begins_and_the_trace_has_the_same_clock(
    runs: Any, work: Callable[[], float]
) -> None:
    step = probe(path=runs.path, skip=0, warmup=0)(work)
    for _ in range(4):
        step()

    (trace,) = runs.traces()
    steps = trace["tracekit"]["steps"]
    assert [a["end_ns"] for a in steps[:-1]] == [b["start_ns"] for b in steps[1:]]
    spans = {event["name"]: event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#")}
    for recorded in steps:
        span = spans[f"ProfilerStep#{recorded['step']}"]
        span_start_ns = trace["baseTimeNanoseconds"] + int(span["ts"] * 1000)
        assert recorded["start_ns"] <= span_start_ns < recorded["end_ns"]
        inside = [e for e in trace["traceEvents"] if e["name"] == "aten::ones" and span["ts"] <= e["ts"]]
        assert len(inside) >= 1
    assert trace["tracekit"]["window"] == {"index": 0, "skip": 0, "warmup": 0, "partial": False}
    assert trace["tracekit"]["overhead"]["stop_ns"] > 0


def test_windows_repeat(runs: Any, work: Callable[[], float]) -> None:
    step = probe(path=runs.path, skip=1, warmup=1, steps=2, repeat=3, every=5)(work)

    for _ in range(20):
        step()

    assert runs.steps() == [[2, 3], [7, 8], [12, 13]]
    assert [trace["tracekit"]["window"]["index"] for trace in runs.traces()] == [0, 1, 2]
    assert len({trace["tracekit"]["run_id"] for trace in runs.traces()}) == 1


@pytest.mark.parametrize(("calls", "recorded"), [(1, []), (4, []), (5, [[4]]), (6, [[4, 5]])])
def test_a_short_job_leaves_a_partial_window_and_a_warning_that_names_the_options(
    runs: Any, work: Callable[[], float], calls: int, recorded: list[list[int]]
) -> None:
    recorder = probe(path=runs.path)
    step = recorder(work)
    for _ in range(calls):
        step()

    with pytest.warns(CaptureWarning, match=rf"ended after {calls} steps.*lower skip or steps \(TRACEKIT_SKIP"):
        recorder.finish()

    assert runs.steps() == recorded
    assert all(trace["tracekit"]["window"]["partial"] for trace in runs.traces())


def test_a_window_that_ends_with_the_job_is_whole(runs: Any, work: Callable[[], float]) -> None:
    recorder = probe(path=runs.path, skip=1)
    step = recorder(work)
    for _ in range(5):
        step()

    recorder.finish()
    recorder.finish()

    (trace,) = runs.traces()
    assert runs.steps() == [[2, 3, 4]]
    assert trace["tracekit"]["window"]["partial"] is False
    assert trace["tracekit"]["steps"][-1]["end_ns"] is not None


def test_each_item_of_a_generator_is_a_step(runs: Any, work: Callable[[], float]) -> None:
    received: list[Any] = []

    @probe(path=runs.path, skip=0, warmup=0, steps=2)
    def training(items: int) -> Generator[int, str, str]:
        for item in range(items):
            work()
            try:
                received.append((yield item))
            except LookupError:
                received.append("error")
        return "done"

    generator = training(3)
    assert next(generator) == 0
    assert generator.send("sent") == 1
    assert generator.throw(LookupError()) == 2
    with pytest.raises(StopIteration) as end:
        next(generator)

    assert end.value.value == "done"
    assert received == ["sent", "error", None]
    assert runs.steps() == [[0, 1]]


def test_the_end_of_a_generator_is_no_step(runs: Any, work: Callable[[], float]) -> None:
    recorder = probe(path=runs.path, skip=0, warmup=0, steps=9)

    @recorder
    def training() -> Iterator[float]:
        for _ in range(3):
            yield work()

    assert list(training()) == [4.0] * 3
    with pytest.warns(CaptureWarning, match="ended after 3 steps"):
        recorder.finish()
    assert runs.steps() == [[0, 1, 2]]


def test_each_await_of_a_coroutine_is_a_step(runs: Any, work: Callable[[], float]) -> None:
    @probe(path=runs.path, skip=0, warmup=0, steps=2)
    async def step() -> float:
        await asyncio.sleep(0)
        return work()

    async def loop() -> list[float]:
        return [await step() for _ in range(3)]

    assert asyncio.run(loop()) == [4.0] * 3
    assert runs.steps() == [[0, 1]]


def test_a_call_within_a_step_belongs_to_it(runs: Any, work: Callable[[], float]) -> None:
    @probe(path=runs.path, skip=0, warmup=0, steps=2)
    def step(depth: int) -> float:
        return step(depth - 1) if depth else work()

    for _ in range(3):
        step(5)

    assert runs.steps() == [[0, 1]]


def test_what_follows_the_last_step_in_the_context_manager_is_no_step(runs: Any, work: Callable[[], float]) -> None:
    with (  # noqa: PT031
        pytest.warns(CaptureWarning, match="ended after 2 steps"),
        probe(path=runs.path, skip=0, warmup=0) as recorder,
    ):
        for _ in range(2):
            work()
            recorder.step()
        work()

    assert runs.steps() == [[0, 1]]


def test_loading_time_is_part_of_the_step_and_visible(runs: Any, work: Callable[[], float]) -> None:
    with probe(path=runs.path, skip=0, warmup=0, steps=2) as recorder:
        assert [recorder.step() for _ in recorder.iterate(range(4))] == [None] * 4

    (trace,) = runs.traces()
    for step in trace["tracekit"]["steps"]:
        assert 0 < step["data_ns"] < step["end_ns"] - step["start_ns"]
    assert "tracekit.data" in names(trace)


def test_an_exception_of_the_loop_passes_unchanged_and_its_step_has_no_end(runs: Any) -> None:
    recorder = probe(path=runs.path, skip=0, warmup=0)
    error = ValueError("the user's own")

    @recorder
    def step(call: int) -> None:
        if call == 1:
            raise error

    step(0)
    with pytest.raises(ValueError, match="the user's own") as raised:
        step(1)
    with pytest.warns(CaptureWarning, match="recorded 2, marked partial"):
        recorder.finish()

    assert raised.value is error
    assert [recorded["end_ns"] is None for recorded in runs.traces()[0]["tracekit"]["steps"]] == [False, True]


def test_a_folder_that_cannot_be_created_gives_a_warning(runs: Any, work: Callable[[], float]) -> None:
    runs.path.write_text("a file, not a folder")
    step = probe(path=runs.path / "below", skip=0, warmup=0, steps=1)(work)

    step()
    with pytest.warns(CaptureWarning, match="could not be written"):
        assert step() == 4.0
    assert step() == 4.0


def test_a_failure_of_the_probe_itself_ends_the_probe_and_not_the_loop(
    runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("torch has changed")

    monkeypatch.setattr("tracekit.capture.recording.Recording.mark", fail)
    step = probe(path=runs.path, skip=0, warmup=0)(work)

    with pytest.warns(CaptureWarning, match="RuntimeError: torch has changed"):
        assert [step() for _ in range(9)] == [4.0] * 9
    assert runs.files() == []


def test_a_warning_raises_nothing_where_warnings_are_errors(
    runs: Any, work: Callable[[], float], capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = probe(path=runs.path)
    recorder(work)()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder.finish()

    assert "tracekit: rank 0: the loop ended after 1 steps" in capsys.readouterr().err


def test_annotations_with_quotes_are_readable(torch: Any, runs: Any, work: Callable[[], float]) -> None:
    @probe(path=runs.path, skip=0, warmup=0, steps=1)
    def step() -> None:
        with torch.profiler.record_function('the "quoted" one'):
            work()

    step()
    step()

    # torch 2.15 writes single quotes.
    assert 'the "quoted" one' in {name.replace("'", '"') for name in names(runs.traces()[0])}


def test_a_probe_that_is_switched_off_returns_the_function_itself(
    runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEKIT", "0")

    assert probe(path=runs.path)(work) is work
    assert probe(work) is work
    with probe(path=runs.path) as recorder:
        recorder.step()
        assert list(recorder.iterate("ab")) == ["a", "b"]
    assert runs.files() == []


def test_the_environment_overrides_path_and_schedule(
    runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for option, value in {"SKIP": "0", "WARMUP": "0", "STEPS": "1", "PATH": str(runs.path)}.items():
        monkeypatch.setenv(f"TRACEKIT_{option}", value)

    step = probe(work)
    step()
    step()

    assert runs.steps() == [[0]]


def test_a_decorated_function_keeps_its_name_and_signature() -> None:
    @probe
    def train_step(batch: int) -> int:
        """Doc."""
        return batch

    assert (train_step.__name__, train_step.__doc__) == ("train_step", "Doc.")
    assert isinstance(probe(), Probe)


def test_importing_and_decorating_do_not_import_torch() -> None:
    code = "import sys; from tracekit.capture.probe import probe; probe(len); print('torch' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "False"


def test_a_window_opens_without_an_import_after_its_warm_up(runs: Any, torch: Any) -> None:
    """A device runs dry while its host imports for tens of milliseconds."""
    program = f"""
        import sys
        import torch
        from tracekit.capture.probe import probe
        loaded = []
        @probe(path={str(runs.path)!r}, skip=1, warmup=1, steps=1, quiet=True)
        def step():
            loaded.append(set(sys.modules))
            torch.ones(2)
        for _ in range(4):
            step()
        opened = loaded[2] - loaded[1]
        print(sorted(name for name in opened if name.startswith("tracekit")))
        print("tracekit.capture.observers.memory" in loaded[2])
    """

    result = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["[]", "True"]


def test_one_process_without_a_group_gives_no_warning_and_no_note(
    runs: Any, work: Callable[[], float], capsys: pytest.CaptureFixture[str]
) -> None:
    step = probe(path=runs.path, skip=0, warmup=0, steps=1, quiet=True)(work)
    step()
    step()

    assert runs.traces()[0]["tracekit"]["notes"] == []
    assert capsys.readouterr().err == ""


def test_a_rank_with_peers_but_no_process_group_warns_that_it_is_recorded_alone(
    runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    step = probe(path=runs.path, skip=0, warmup=0, steps=1)(work)
    step()

    with pytest.warns(CaptureWarning, match="recorded alone"):
        step()

    (note,) = runs.traces()[0]["tracekit"]["notes"]
    assert "no process group" in note["text"]


def test_a_run_id_that_is_used_gives_a_warning_and_another_name(
    runs: Any, work: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.capture.job.run_agreement._new_name", lambda *_: "same")
    for windows in (1, 2):
        step = probe(path=runs.path, skip=0, warmup=0, steps=1, repeat=2)(work)
        if windows == 1:
            for _ in range(3):
                step()
            runs.wait()
        else:
            step()
            with pytest.warns(CaptureWarning, match="in run same exists, so this one is in run same-2"):
                step()
            step()

    found = [(trace["tracekit"]["run_id"], trace["tracekit"]["steps"][0]["step"]) for trace in runs.traces()]
    assert sorted(found, key=lambda pair: pair[::-1]) == [
        ("same", 0),
        ("same-2", 0),
        ("same", 1),
        ("same-2", 1),
    ]
    moved = [trace["tracekit"] for trace in runs.traces() if trace["tracekit"]["run_id"] == "same-2"]
    assert ["same-2" in note["text"] for note in moved[0]["notes"]] == [True]
    assert moved[1]["notes"] == []
