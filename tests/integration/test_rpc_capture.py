"""Remote calls in real processes: each joined to what its callee did, and nobody disturbed by the mark it carries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, notes_of, read_traces, result_of
from tests.places import PROBES
from tracekit.model.spans import parse_rpc_span
from tracekit.render.terminal import terminal_text
from tracekit.report.report import analyze

WORKER = Path(__file__).with_name("rpc_worker.py")
PROBE = PROBES / "parameter_server.py"
BATCH_UPDATE_WORKER = Path(__file__).with_name("rpc_batch_update_worker.py")
STEPS = 3
DELAY_MS = 100
SERVICE_NS = 10_000_000
# How often a step calls what; `_rref_typeof_on_owner` is torch's, before the first call of a remote object's method.
TO_SERVER = {
    "pull": 1,
    "push": 1,
    "double": 2,
    "Counter": 1,
    "add": 3,
    "_rref_typeof_on_owner": 1,
    "fail": 1,
    "relayed": 1,
}


@pytest.fixture(scope="module")
def recorded(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rpc")
    torchrun(WORKER, out, ranks=3)
    return out


@pytest.fixture(scope="module")
def result(recorded: Path) -> dict[str, Any]:
    return result_of(recorded)


def rows_of(result: dict[str, Any], callee: str) -> dict[str, dict[str, Any]]:
    return {row["function"]: row for row in result["rpc"]["calls"] if row["callee"] == callee}


def test_what_a_trainer_computes_is_the_same_undecorated(recorded: Path) -> None:
    outcomes = json.loads((recorded / "outcomes.json").read_text())

    assert len(outcomes["undecorated"]) == 8
    assert outcomes["undecorated"] == outcomes["decorated"]
    assert all(outcome[2] == ["RuntimeError", True] for outcome in outcomes["decorated"])  # the callee's exception


def test_workers_without_a_process_group_are_one_run(recorded: Path, result: dict[str, Any]) -> None:
    traces = read_traces(recorded)

    assert [trace["tracekit"]["rank"] for trace in traces] == [0, 1]
    assert {trace["tracekit"]["world_size"] for trace in traces} == {3}
    assert len({trace["tracekit"]["run_id"] for trace in traces}) == 1
    assert result["run"]["strategies"] == ["rpc"]
    assert result["run"]["missing_ranks"] == [2]
    assert result["run"]["other_runs"] == []
    assert [row["steps"] for row in result["ranks"]] == [0, STEPS]


def test_every_call_of_the_window_is_joined_to_its_service(result: dict[str, Any]) -> None:
    rows = rows_of(result, "ps")

    marked = {name: rows[name] for name in TO_SERVER}
    assert {name: row["calls"] for name, row in marked.items()} == {name: STEPS * n for name, n in TO_SERVER.items()}
    for row in marked.values():
        assert row["joined"] == row["completed"] == row["calls"]
        assert 0 < row["service_ns"] <= row["round_trip_ns"]
        assert row["transit_ns"] == row["round_trip_ns"] - row["service_ns"]
        assert (row["rank"], row["worker"], row["callee_rank"]) == (1, "trainer", 0)
    assert rows["pull"]["service_ns"] >= STEPS * SERVICE_NS


def test_a_worker_with_steps_serves_as_well(result: dict[str, Any]) -> None:
    rows = rows_of(result, "trainer")

    assert {name: (row["calls"], row["joined"]) for name, row in rows.items()} == {"double": (STEPS, STEPS)}


def test_what_cannot_be_joined_is_counted_and_named(result: dict[str, Any]) -> None:
    unjoined = {(row["callee"], row["reason"]): row["count"] for row in result["rpc"]["unjoined"]}

    assert unjoined == {
        ("bare", "the callee has no recording"): STEPS,
        ("ps", "a call of a builtin operator carries no id"): STEPS,
        ("ps", "a call of a TorchScript function carries no id"): STEPS,
        ("ps", "the fetch of a remote value carries no id"): STEPS,
    }
    assert any(
        text.startswith("rank 1: 3 remote calls to bare not joined to a service: the callee has no recording")
        for text in notes_of(result, "unlinked")
    )


def test_both_sides_have_spans_of_one_id(recorded: Path) -> None:
    server, trainer = read_traces(recorded)
    labels = [[parse_rpc_span(event["name"]) for event in trace["traceEvents"]] for trace in (server, trainer)]
    served, issued = ([label for label in side if label is not None] for side in labels)

    services = {(label.caller, label.number) for label in served if label.side == "serve"}
    to_server = [label for label in issued if label.side == "call" and label.callee == "ps"]
    assert len(to_server) == STEPS * sum(TO_SERVER.values())
    assert {(label.caller, label.number) for label in to_server} <= services
    # a worker with steps is recorded on the threads of its requests, too
    assert len([label for label in issued if label.side == "serve"]) == STEPS


def test_only_calls_of_recording_peers_are_kept(recorded: Path) -> None:
    """The peer without a probe made its calls without a mark, and they were answered all the same."""
    server, _ = read_traces(recorded)

    assert {service["caller"] for service in server["tracekit"]["rpc"]["services"]} == {1}


def test_the_parameter_servers_delay_is_found(torchrun: Launch, tmp_path: Path) -> None:
    torchrun(PROBE, "--device", "cpu", "--slow-server-ms", "50", "--out", tmp_path, ranks=3)
    result = result_of(tmp_path)

    assert result["run"]["strategies"] == ["rpc"]
    assert result["run"]["missing_ranks"] == []
    assert result["rpc"]["unjoined"] == []
    rows = {(row["rank"], row["function"]): row for row in result["rpc"]["calls"]}
    assert set(rows) == {(rank, function) for rank in (1, 2) for function in ("pull", "push")}
    for row in rows.values():
        assert row["calls"] == row["joined"] == row["completed"] == STEPS
    assert all(rows[rank, "pull"]["service_ns"] >= STEPS * 50_000_000 for rank in (1, 2))
    # On a busy machine a trainer may be slow, too. That finding names no function.
    (finding,) = [finding for finding in result["findings"] if "function" in finding["evidence"]]
    assert (finding["cause"], finding["evidence"]["function"], finding["evidence"]["callee"]) == ("rpc", "pull", "ps")
    assert finding["time_ns"] >= 50_000_000
    text = terminal_text(analyze(tmp_path))
    assert "Remote calls, the most waited for first" in text
    assert max(len(line) for line in text.splitlines()[1:] if not line.startswith("Next: ")) <= 80


def test_a_slow_trainer_is_named_by_its_rate_and_nobody_waits_for_it(torchrun: Launch, tmp_path: Path) -> None:
    delay_ms = str(4 * DELAY_MS)  # far more than what other processes cost the quick trainers
    arguments = ("--device", "cpu", "--slow-trainer", "2", "--delay-ms", delay_ms, "--out", tmp_path)
    torchrun(PROBE, *arguments, ranks=4)
    result = result_of(tmp_path)

    (slow,) = [finding for finding in result["findings"] if finding["id"] == "slow-rate"]
    assert slow["evidence"]["of_trainers"]
    assert not [each for each in result["findings"] if each["id"] in {"straggler", "waited-for-trainer"}]
    trainers = {row["rank"]: row for row in result["rpc"]["trainers"]}
    assert slow["ranks"] == [2]
    assert trainers[2]["steps_per_s"] < 1000 / DELAY_MS
    assert result["unavailable"].keys() >= {"whatif", "diagnosis"}


def test_trainers_wait_at_a_server_that_answers_them_together(torchrun: Launch, tmp_path: Path) -> None:
    """GIVEN calls that are complete when the last trainer's has come; the last one is that of rank 2."""
    torchrun(BATCH_UPDATE_WORKER, tmp_path, DELAY_MS, ranks=4)
    result = result_of(tmp_path)

    trainers = {row["rank"]: row for row in result["rpc"]["trainers"]}
    assert all(trainers[rank]["held_ns"] > 0.5e6 * DELAY_MS for rank in (1, 3))
    assert trainers[2]["held_ns"] < 0.5 * min(trainers[rank]["held_ns"] for rank in (1, 3))
    (finding,) = [finding for finding in result["findings"] if finding["id"] == "waited-for-trainer"]
    assert finding["rank"] == 2
    assert (finding["evidence"]["callee"], finding["evidence"]["worker"]) == ("ps", "trainer2")
