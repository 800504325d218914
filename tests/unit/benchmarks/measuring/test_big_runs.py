"""Generated runs for benchmarks: each rank is a trace as torch writes it, and the ranks form one run."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

import tracekit
from benchmarks.costs.whole_run import unpacked_bytes
from benchmarks.measuring.big_runs import make_run, read_seed
from benchmarks.measuring.empty_run import nearly_empty_run

SEED = """{
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, "pg_config": [{"pg_size": 2, "ranks": [0, 1]}]},
  "traceEvents": [
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 2910249, "tid": 1,
    "ts": 1000.000, "dur": 900.0, "args": {"External id": 3}
  },
  {
    "ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce", "pid": 0, "tid": 7,
    "ts": 1100.500, "dur": 40.0,
    "args": {"External id": 4, "device": 0, "Collective name": "allreduce", "Group size": 2}
  },
  {
    "name": "process_name", "ph": "M", "ts": 0.0, "pid": 2910249, "tid": 0, "args": {"name": "python"}
  }],
  "displayTimeUnit": "ms"
}
"""


@pytest.fixture
def big_run(tmp_path):
    (tmp_path / "seed.json").write_text(SEED)
    paths = make_run(tmp_path / "run", read_seed(tmp_path / "seed.json"), ranks=10, repeats=3)
    return paths, [json.loads(gzip.decompress(path.read_bytes())) for path in paths]


def test_every_rank_states_its_number(big_run):
    _, traces = big_run
    assert [trace["distributedInfo"]["rank"] for trace in traces] == list(range(10))
    assert {trace["distributedInfo"]["world_size"] for trace in traces} == {10}
    assert traces[9]["distributedInfo"]["pg_config"] == [{"pg_size": 10, "ranks": list(range(10))}]


def test_repeats_continue_steps_ids_and_sequence(big_run):
    _, traces = big_run
    events = traces[3]["traceEvents"]
    assert [event["name"] for event in events[::2]] == [
        "ProfilerStep#7",
        "ProfilerStep#10",
        "ProfilerStep#13",
        "process_name",
    ]
    collectives = events[1::2]
    assert [event["args"]["Seq"] for event in collectives] == [1, 1001, 2001]
    assert [event["args"]["External id"] for event in collectives] == [4, 100_004, 200_004]
    starts = [event["ts"] for event in collectives]
    assert starts == sorted(starts)


def test_ranks_beyond_a_host_of_eight_carry_the_events_of_their_device(big_run):
    _, traces = big_run
    assert traces[9]["traceEvents"][:-1] == traces[1]["traceEvents"][:-1]
    assert traces[9]["traceEvents"][1]["args"]["device"] == 1
    assert traces[2]["traceEvents"][1]["ts"] != traces[1]["traceEvents"][1]["ts"]


def test_a_file_is_one_gzip_member_and_states_its_size(big_run):
    (path, *_), _ = big_run
    inflater = zlib.decompressobj(wbits=31)
    text = inflater.decompress(path.read_bytes())
    assert inflater.eof
    assert not inflater.unused_data
    assert unpacked_bytes(path) == len(text)


def test_a_nearly_empty_run_can_be_analysed():
    with nearly_empty_run(2) as folder:
        run = tracekit.load(folder)
    assert not [note for note in run.notes if note.is_defect]
    assert [[step.step for step in rank.steps] for rank in run.ranks] == [[0, 1, 2], [0, 1, 2]]
