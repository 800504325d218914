"""Simulated traces have the records of real ones: categories, keys in their order, and types of values.

The real traces are of torch 2.4 (A100) and torch 2.8 (B200). What newer versions add is listed here with its source.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_jobs import FAMILIES, JobSpec, simulate, spec_of
from tests.places import DATA

A100 = "single_rank/a100_ddp_rank0_of_2.json.gz"
B200 = "single_rank/b200_tp8_custom_allreduce.json.gz"

# `saveNcclMeta` of torch/csrc/profiler/util.cpp; Kineto copies all but the first to kernels (output_json.cpp).
NEWER = {"Rank", "Seq", "Comms Id", "Src Rank", "Dst Rank"}
# Recorded only with record_shapes, with_stack or by old versions; the simulated jobs have none of it.
OPTIONAL = {"Input Dims", "Input type", "Input Strides", "Concrete Inputs"}
NOT_SIMULATED = {"fwdbwd", "gpu_memset", "python_function", "overhead", "cuda_driver"}

Event = dict[str, Any]


def real_trace(folder: Path, name: str) -> dict[str, Any]:
    with gzip.open(folder / name) as stream:
        return json.load(stream)


def simulated_traces() -> list[dict[str, Any]]:
    """Return traces of rank 0 of jobs that hold every kind of record."""
    specs = [replace(spec_of(family, 0), clocks=JobSpec(family="ddp").clocks) for family in FAMILIES]
    specs += [
        JobSpec(family="ddp", dp=2, sequence_numbers=False, synced=True),
        JobSpec(family="pipeline", pp=2, microbatches=4, batched_messages=True, labels="microbatch"),
        JobSpec(family="pipeline", pp=2, microbatches=4, labels="action"),
        JobSpec(family="expert", dp=2, ep=2, dispatch="kernels"),
    ]
    return [json.loads(simulate(spec).traces()[0]) for spec in specs]


def kind_of(event: Event) -> str:
    """Return the category, and more where records of a category differ in their arguments."""
    kind = f"{event['ph']} {event.get('cat', event['name'])}"
    args = event.get("args", {})
    if event["name"] == "record_param_comms":
        return f"{kind} {event['name']}"
    if event.get("cat") == "kernel" and "Collective name" in args:
        return f"{kind} of a collective"
    if "Sequence number" in args:
        return f"{kind} that autograd knows"
    if event.get("cat") == "ac2g":
        return f"{kind} {'device' if event['pid'] == 0 else 'host'}"
    return kind


def by_kind(events: Iterable[Event]) -> dict[str, list[Event]]:
    kinds = defaultdict(list)
    for event in events:
        kinds[kind_of(event)].append(event)
    return kinds


@pytest.fixture(scope="module")
def simulated() -> dict[str, list[Event]]:
    return by_kind(event for trace in simulated_traces() for event in trace["traceEvents"])


@pytest.fixture(scope="module")
def real(real_traces: Path) -> dict[str, list[Event]]:
    return by_kind(event for name in (A100, B200) for event in real_trace(real_traces, name)["traceEvents"])


def test_every_category_of_a_simulated_trace_is_in_real_ones_and_the_reverse(simulated, real) -> None:
    left_out = {kind for kind in real if kind.split()[1] in NOT_SIMULATED}

    assert simulated.keys() <= real.keys()
    assert real.keys() - left_out - simulated.keys() <= {"f ac2g host"}  # of calls that launch nothing


def test_events_have_the_keys_of_real_ones_in_their_order(simulated, real) -> None:
    for kind, events in simulated.items():
        expected = {tuple(event) for event in real[kind]}
        assert {tuple(event) for event in events} <= expected, kind


def test_events_have_the_arguments_of_real_ones(simulated, real) -> None:
    for kind, events in simulated.items():
        allowed = {key for event in real[kind] for key in event.get("args", {})} | (
            NEWER if "comms" in kind or "collective" in kind else set()
        )
        always = set.intersection(*(set(event.get("args", {})) for event in real[kind])) - OPTIONAL
        for event in events:
            args = event.get("args", {}).keys()
            assert always <= args <= allowed, (kind, event)


def test_arguments_have_the_types_of_real_ones(simulated, real) -> None:
    for kind, events in simulated.items():
        expected = defaultdict(set)
        for event in real[kind]:
            for key, value in event.get("args", {}).items():
                expected[key].add(_type(value))
        for event in events:
            for key, value in event.get("args", {}).items():
                assert _type(value) in expected.get(key, {float}), (kind, key, value)


def _type(value: Any) -> type:
    return float if isinstance(value, int) else type(value)


def test_a_kernel_of_a_collective_has_the_arguments_that_kineto_copies(simulated) -> None:
    """All of `record_param_comms` except where the group lies, and whom it is called with."""
    operators = {event["args"]["External id"]: event["args"] for event in simulated["X cpu_op record_param_comms"]}
    (keys,) = {
        frozenset(args) - {"External id", "Record function id", "Ev Idx"}
        for args in operators.values()
        if args["Collective name"] == "allreduce" and "Seq" in args
    }
    (copied,) = {
        frozenset(event["args"]) & keys
        for event in simulated["X kernel of a collective"]
        if event["args"]["Collective name"] == "allreduce" and "Seq" in event["args"]
    }

    assert keys - copied == {"Rank", "Global rank start", "Global rank stride"}


def test_the_header_has_keys_of_real_ones(real_traces: Path) -> None:
    """Those of torch 2.13 are in a trace of CPUs that is part of the tests."""
    headers = [real_trace(real_traces, name) for name in (A100, B200)]
    (newer, *_) = sorted((DATA / "ddp_slow_rank").rglob("*.json.gz"))
    known = {key for header in [*headers, real_trace(newer.parent, newer.name)] for key in header} - {"tracekit"}

    for trace in simulated_traces():
        assert trace.keys() <= known
        assert set.intersection(*(set(header) for header in headers)) <= trace.keys()
        assert trace["distributedInfo"].keys() == headers[0]["distributedInfo"].keys()
        assert trace["deviceProperties"][0].keys() == headers[0]["deviceProperties"][0].keys()
        assert trace["distributedInfo"]["pg_config"][0].keys() == headers[0]["distributedInfo"]["pg_config"][0].keys()


def test_a_batched_kernel_has_no_arguments_of_its_messages() -> None:
    """Its operators have ended when ncclGroupEnd launches it, in the annotation of the coalesced work."""
    spec = JobSpec(family="pipeline", pp=2, layers=2, microbatches=2, batched_messages=True)
    events = simulate(spec).traces()[0]
    kernels = [
        event
        for event in json.loads(events)["traceEvents"]
        if event.get("cat") == "kernel" and "SendRecv" in event["name"]
    ]

    assert len(kernels) > 0
    assert all("Collective name" not in kernel["args"] and "External id" not in kernel["args"] for kernel in kernels)
