"""A decoded trace with other names: which are replaced, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.builders import TraceBuilder
from tracekit.model.events import ABSENT, DecodedTrace
from tracekit.model.names.pseudonyms import NameCollector, Pseudonyms
from tracekit.read.decode.decoder import decode, decode_written
from tracekit.read.files.storage import parse_path

ANNOTATIONS = {
    "my phase": "annotation-5",
    "ProfilerStep#3": "ProfilerStep#3",
    "nccl:all_reduce": "nccl:all_reduce",
    "Optimizer.step#Adam.step": "Optimizer.step#Adam.step",
    "Forward 3": "Forward 3",
    "PP:2F0": "PP:2F0",
    "tracekit.pp:F.s1.mb0": "tracekit.pp:F.s1.mb0",
    "tracekit.module:tower.0": "tracekit.module:module-3.0",
    "tracekit.module:<root>": "tracekit.module:<root>",
    "tracekit.fsdp:prefetch backward tower.0|head": "tracekit.fsdp:prefetch backward module-3.0|module-2",
    "tracekit.ddp:hook.b2.n1024.last Net": "tracekit.ddp:hook.b2.n1024.last module-1",
    "tracekit.rpc:call.1.17 ->server pull": "tracekit.rpc:call.1.17 ->worker-1 function-1",
    "tracekit.rpc:serve.1.17 pull": "tracekit.rpc:serve.1.17 function-1",
    "FSDP::all_gather (tower.0, head) [pg=2]": "FSDP::all_gather (module-3.0, module-2) [pg=2]",
    "FSDP::pre_forward": "FSDP::pre_forward",
}
PYTHON = {
    "train.py(12): work": "path-1.py(12): function-2",
    "/env/lib/python3.11/site-packages/torch/nn/linear.py(3): forward": "torch/nn/linear.py(3): forward",
    "threading.py(90): run": "threading.py(90): run",
    "<built-in method len>": "<built-in method len>",
    "<built-in method step of list object at 0x7f>": "<built-in method step>",
    "nn.Module: Net_0": "nn.Module: module-1_0",
}
# Names and categories of other events.
OTHERS = {
    ("acme flush", "overhead"): ("annotation-2", "overhead"),
    ("Buffer Flush", "overhead"): ("Buffer Flush", "overhead"),
    ("acme_copy", "acme"): ("annotation-4", "category-1"),
    ("Stream Wait Event", "cuda_sync"): ("Stream Wait Event", "cuda_sync"),
    ("acme sync", "cuda_sync"): ("annotation-3", "cuda_sync"),
    ("ac2g", "ac2g"): ("ac2g", "ac2g"),
    ("ac2g of acme", "ac2g"): ("annotation-1", "ac2g"),
    ("cudaStreamSynchronize", "cuda_runtime"): ("cudaStreamSynchronize", "cuda_runtime"),
}


def builder() -> TraceBuilder:
    trace = TraceBuilder().step(3, 0, 1000)
    for at, name in enumerate(ANNOTATIONS):
        trace.label(name, at, 1)
    for at, name in enumerate(PYTHON):
        trace.event(name, "python_function", at, 1, args={})
    for name, category in OTHERS:
        trace.event(name, category, 400, 1, args={})
    trace.op("aten::my phase", 500, 1, **{"Input Dims": [[2]], "note": "x", "number": 3, "Concrete Inputs": ["x", "3"]})
    return trace.kernel("my phase kernel", 600, 1)


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(builder().write(tmp_path_factory.mktemp("trace") / "rank0.json"))


def pseudonyms_for(path: str) -> Pseudonyms:
    collector = NameCollector()
    decode(parse_path(path), extra_args=True, namer=collector)
    return Pseudonyms.of_names(collector.names)


def names_of(trace: DecodedTrace) -> list[str]:
    return [trace.events.strings[name] for name in trace.events.name.tolist()]


def test_names_are_replaced_by_what_they_name(path: str) -> None:
    before, after = decode(parse_path(path)), decode(parse_path(path), namer=pseudonyms_for(path))
    actual = dict(zip(names_of(before), names_of(after), strict=True))
    others = {name: renamed for (name, _), (renamed, _) in OTHERS.items()}
    operations = {"aten::my phase": "aten::my phase", "my phase kernel": "my phase kernel"}
    assert actual == {**ANNOTATIONS, **PYTHON, **others, **operations}


def test_categories_of_kineto_stay_and_others_are_replaced(path: str) -> None:
    events = decode(parse_path(path), namer=pseudonyms_for(path)).events
    named = zip(events.name.tolist(), events.category.tolist(), strict=True)
    actual = {(events.strings[name], events.strings[category]) for name, category in named}
    assert set(OTHERS.values()) <= actual
    assert "acme" not in events.categories


def test_times_and_numbers_stay(path: str) -> None:
    before, after = decode(parse_path(path)), decode(parse_path(path), namer=pseudonyms_for(path))
    for column in ("start_ns", "duration_ns", "track", "correlation", "external_id", "shape"):
        np.testing.assert_array_equal(getattr(after.events, column), getattr(before.events, column))


def test_known_arguments_stay_if_they_say_nothing(path: str) -> None:
    written = decode_written(parse_path(path), namer=pseudonyms_for(path))
    texts = [written.texts[name] for name in written.name.tolist()]
    number = int(written.arguments[texts.index("aten::my phase")])
    arguments = msgspec.json.decode(written.argument_texts[number])
    assert arguments == {"Input Dims": [[2]], "Concrete Inputs": ["", "3"]}


def test_a_collector_replaces_nothing(path: str) -> None:
    before = decode(parse_path(path), extra_args=True)
    after = decode(parse_path(path), extra_args=True, namer=NameCollector())
    replaced = {old: new for old, new in zip(names_of(before), names_of(after), strict=True) if old != new}
    assert set(replaced.values()) == {"torch/nn/linear.py(3): forward", "<built-in method step>"}


def test_an_event_without_public_arguments_has_none(tmp_path: Path) -> None:
    path = str(TraceBuilder().op("aten::add", 0, 1, acme=5).write(tmp_path / "rank0.json"))
    events = decode(parse_path(path), extra_args=True, namer=NameCollector()).events
    assert events.extra_args.tolist() == [ABSENT]
