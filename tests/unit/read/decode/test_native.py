"""The native decoder gives the same bits as the portable one, or leaves the trace to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.components import require_module
from tests.trace_text import Packing, pack
from tests.unit.read.decode.decoders import decode, differences, native_decoder, outcome
from tracekit.errors import UsageError
from tracekit.read.decode import decoder, portable
from tracekit.read.decode.written_events import RawArguments

native = native_decoder()

INSTANT = '{"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5.5, "args": {"Bytes": %s}}'
EVENT = '{"ph": "X", "name": "%s", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": %s, "dur": %s, "args": {%s}}'


def event(name: str = "aten::add", ts: str = "5.5", dur: str = "1", args: str = "") -> str:
    return EVENT % (name, ts, dur, args)


def trace(*events: str, before: str = "", behind: str = "") -> str:
    return "{" + before + '"traceEvents": [' + ",\n".join([event("first"), *events, event("last")]) + "]" + behind + "}"


def is_read_natively(folder: Path, text: str) -> bool:
    """Whether the native decoder reads this trace; if it does, both decoders must agree.

    It reads events that are dropped, to show what the others are. Which those are is for the portable decoder to say.
    """
    path = folder / "rank0.json"
    path.write_bytes(text.encode())
    actual, expected = (outcome(decode_, path, extra_args=True) for decode_ in (native.decode, portable.decode))
    if actual is not None:
        assert differences(actual, expected) == []
    assert (outcome(native.decode, path) is None) == (actual is None)
    return outcome(native.decode_written, path) is not None


def test_the_kept_arguments_are_those_of_the_portable_decoder() -> None:
    assert tuple(native._scanner.ARGUMENT_KEYS) == RawArguments.__struct_encode_fields__


@pytest.mark.parametrize(
    "text",
    [
        trace(event(ts="1700000000000000.123", dur="0.001")),
        trace(event(ts="1700000000000000", dur="3")),
        trace(event(ts="-12.25")),
        trace(event(ts="7.1234567", dur="0.0005")),
        trace(event(ts="0.0015"), event(ts="0.0025"), event(ts="-0.0005")),
        trace(event(ts="4398046511104.9996", dur="1.00049")),
        trace(event(dur="-1")),
        trace(event(ts="4611686018427387"), event(ts="4611686018427388"), event(ts="99999999999999999999")),
        trace(event(ts="4611686018427387.903"), event(ts="4611686018427387.904")),
        trace(event(args='"correlation": 4611686018427387903, "External id": 4611686018427387904')),
        trace(event(args='"correlation": 18446744073709551615, "External id": -1, "Sequence number": null')),
        trace(event(args='"correlation": 99999999999999999999999999999999')),
        trace(event(args='"Seq": 1, "Seq": 2')),
        trace(event("record_param_comms", args='"Collective name": "send", "Rank": 1, "Dst Rank": 3')),
        trace(event("record_param_comms", args='"Collective name": "recv", "Src Rank": -1, "Dst Rank": null')),
        trace(*[event(args='"correlation": 1 , "x" : 2 , "y":3')] * 2),
        trace(
            event(ts='99999999999999999, "ts": 2'), event(ts='2, "ts": 99999999999999999'), event(ts='2, "ts": null')
        ),
        trace(event(args='"x": {"a": [1, 2.5e+3, -0, true, false, null, "\\u00e9"]}, "Input Dims": [[ 1,2 ], []]')),
        trace(event(args='"Input Dims": null'), event(args='"grid": [1, 2, 3]'), event(args='"grid": ""')),
        trace(event("nccl:all_reduce", args='"Collective name": "allreduce", "Process Group Name": 7, "dtype": null')),
        trace(
            event('a\\"b\\\\c\\/d\\n\\u00e9é日本'), event("\\u65e5本"), event("aten::mm", args='"Input Dims": [[2]]')
        ),
        trace(event("c10d::allreduce_"), event("c10d\\/"), event("record_param_comms")),
        trace(event().replace('"pid": 1, "tid": 1', '"pid": "Spans", "tid": "PyTorch Profiler"')),
        trace(event().replace('"pid": 1, "tid": 1', '"pid": null')),
        trace(event().replace('"cat": "cpu_op"', '"cat": null').replace('"name": "aten::add"', '"name": null')),
        trace(event().replace('"ph": "X"', '"ph": null'), event().replace('"ph": "X", ', "")),
        trace(event().replace('"ts": 5.5, ', ""), event().replace('"dur": 1, ', '"dur": null, ')),
        trace(event().replace('"args": {}', '"args": null'), event(args='"Seq": 1').replace("}}", '}, "args": {}}')),
        trace('{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}'),
        trace('{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": 12}}'),
        trace('{"ph": "s", "id": 3, "pid": 1, "tid": 1, "ts": 4, "cat": "fwdbwd", "name": "flow"}', '{"ph": "i"}'),
        trace(INSTANT % "-1", INSTANT % "-0", INSTANT % '4, "Total Allocated": 4e5, "Device Id": -1'),
        trace(
            INSTANT % "0.5", INSTANT % '"1"', INSTANT % "[1]", INSTANT % '{"a": 1}', INSTANT % "true", INSTANT % "null"
        ),
        trace(*(INSTANT % number for number in (2**62 - 1, 2**62, 1 - 2**62, -(2**62), 2**63, 2**64, 10**40))),
        trace(INSTANT % '1, "Bytes": null', INSTANT % 'null, "Bytes": 1', INSTANT.replace('"ts"', '"t"') % 1),
        trace(INSTANT.replace('"i"', '"I"') % 1, (INSTANT % 1).replace("}}", '}, "args": null}')),
        trace(event(args='"Bytes": [1], "Device Id": "x", "Total Allocated": 1.5')),
        trace(event().replace(" ", "\n\t  "), event().replace(" ", "")),
        trace(*(event(f"op{i}", ts=str(i)) for i in range(5000))),
        trace(event("x" * 300_000), event("y" * 3_000_000)),
        trace(before='"baseTimeNanoseconds": 1000000, ', behind=', "distributedInfo": {"rank": 3, "world_size": 8}'),
        "[" + event("in array form") + "]",
        "[" + event(ts="1") + "," + event(ts="999999999999999") + "," + event(ts="2") + "]",
    ],
)
def test_it_reads_what_a_profiler_may_write(tmp_path: Path, text: str) -> None:
    assert is_read_natively(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"traceEvents": []}',
        trace("null"),
        trace(event(ts="1e3")),
        trace(event(ts='"5.5"')),
        trace(event(ts="01")),
        trace(event(ts="1700000000000000.12345")),
        trace(event(args='"correlation": 1.5')),
        trace(event(args='"correlation": "1"')),
        trace(event(args='"x": 1,')),
        trace(event(args='"x": +1')),
        trace(event(args='"\\u0053eq": 1')),
        trace(event("c10d\\u003a:allreduce_")),
        trace(INSTANT.replace("[memory", "\\u005bmemory") % 1),
        trace(event("\\ud83d\\ude00")),
        trace(event("\\q")),
        trace(*(event().replace('"X"', f'"{number}"') for number in range(100))),
        trace(event("a\tb")),
        trace(event(args=f'"x": {"[" * 100}{"]" * 100}')),
        trace('{"ph": "B", "name": "a", "pid": 1, "tid": 1, "ts": 1}', '{"ph": "E", "pid": 1, "tid": 1, "ts": 2}'),
        trace(event())[:-4],
        trace(event()).replace("}]", "},]"),
        trace(event()).replace(",\n", "\n"),
    ],
)
def test_it_leaves_the_rest_to_the_portable_decoder(tmp_path: Path, text: str) -> None:
    """GIVEN a trace that only the portable decoder can judge THEN `decode` returns what that one does."""
    assert not is_read_natively(tmp_path, text)
    path = tmp_path / "rank0.json"
    assert differences(outcome(decoder.decode, path), outcome(portable.decode, path)) == []


def test_pieces_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(trace(event("ä\\n", args='"Input Dims": [[1, 2], []], "x": "y"'), behind=', "host_name": "h"'))
    whole = decode(path)
    for size in range(1, 120):
        monkeypatch.setattr(native, "_STEP_BYTES", size)
        assert differences(native.decode(path), whole) == [], size


class PieceStream:
    """A stream that returns pieces of the given sizes."""

    def __init__(self, text: bytes, sizes: Iterator[int]) -> None:
        self.text, self.sizes = text, sizes

    def readinto(self, buffer: memoryview) -> int:
        piece = self.text[: min(next(self.sizes), len(buffer))]
        self.text = self.text[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)

    def read(self, size: int) -> bytes:
        piece, self.text = self.text[:size], self.text[size:]
        return piece


def test_an_event_that_is_too_long_is_left_to_the_portable_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_LIMITS", "event_bytes=1000")
    text = event("n" * 2000).encode()
    assert native._scan(native._scanner.Scanner([], []), text, PieceStream(b"", iter([0]))) is None


@pytest.mark.parametrize("inflater", ["isal", "zlib"])
@pytest.mark.parametrize("packing", ["plain", "gz", "members", "zstd"])
def test_packed_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: Packing, inflater: str
) -> None:
    if inflater == "isal":
        require_module("isal")
    else:
        monkeypatch.setitem(sys.modules, "isal", None)
        monkeypatch.setitem(sys.modules, "isal.igzip", None)
    text = TraceBuilder(rank=3, world_size=4).op("aten::add", 1, 1).text(tail=True)
    packed = require_module("zstandard").compress(text) if packing == "zstd" else pack(text, packing)
    path = tmp_path / "rank3.json"
    path.write_bytes(packed)
    actual = native.decode(path)
    assert actual is not None
    assert actual.header.rank == 3
    assert differences(actual, portable.decode(path)) == []


@pytest.mark.parametrize("mutate", [lambda p: p[:-9], lambda p: p + b"behind the end", lambda p: p[:60] + p[70:]])
def test_damaged_packing_is_left_to_the_portable_decoder(tmp_path: Path, mutate: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(mutate(pack(TraceBuilder().op("aten::add", 1, 1).text(), "gz")))
    assert native.decode(path) is None


def test_real_traces_are_read(real_traces: Path) -> None:
    """GIVEN the public traces THEN the native decoder reads all of them, and both decoders agree."""
    paths = [path for path in sorted(real_traces.rglob("*.json.gz")) if "whatif" not in str(path)]
    assert len(paths) > 10
    for path in paths:
        assert differences(native.decode(path, extra_args=True), portable.decode(path, extra_args=True)) == [], path


def test_a_scanner_is_used_once() -> None:
    scanner = native._scanner.Scanner([], [])
    text = bytearray(event().encode() + b"] rest")
    size = len(text)
    with pytest.raises(ValueError, match="no room"):
        scanner.scan(text, size)
    assert scanner.scan(text + bytes(native.PADDING_BYTES), size) == (size - len(" rest"), True)
    assert len(memoryview(scanner.take()["dense"]["start_ns"])) == 8
    with pytest.raises(RuntimeError, match="taken"):
        scanner.scan(bytearray(100), 1)
    with pytest.raises(TypeError):
        native._scanner.Scanner(["text"], [])


class TestChoice:
    @pytest.fixture(autouse=True)
    def path(self, tmp_path: Path) -> Path:
        return TraceBuilder().op("aten::add", 1, 1).write(tmp_path / "rank0.json")

    @pytest.mark.parametrize("value", [None, "", "1"])
    def test_the_native_decoder_is_used_where_it_was_built(
        self, value: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TRACEKIT_NATIVE", raising=False)
        if value is not None:
            monkeypatch.setenv("TRACEKIT_NATIVE", value)
        assert decoder.chosen_decoder() == "native"

    def test_0_chooses_the_portable_decoder(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRACEKIT_NATIVE", "0")
        monkeypatch.setattr(native, "decode", None)
        assert decoder.chosen_decoder() == "portable"
        assert len(decoder.decode(path).events) == 1

    def test_another_value_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRACEKIT_NATIVE", "fast")
        with pytest.raises(UsageError, match="TRACEKIT_NATIVE=fast: neither 0 nor 1"):
            decoder.chosen_decoder()

    def test_1_is_an_error_where_the_decoder_was_not_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(decoder, "_native_decoder", lambda: None)
        monkeypatch.delenv("TRACEKIT_NATIVE", raising=False)
        assert decoder.chosen_decoder() == "portable"
        monkeypatch.setenv("TRACEKIT_NATIVE", "1")
        with pytest.raises(UsageError, match="the native decoder was not built"):
            decoder.chosen_decoder()


@pytest.mark.parametrize("behind", ['{"External id": 1}', "{}", "[]", ' {"External id": 1}'])
def test_nothing_follows_arguments_that_are_null(tmp_path: Path, behind: str) -> None:
    """GIVEN an event with arguments, so that the scanner knows what comes before their values THEN no other event may
    have both null and these."""
    good = '{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {"External id": 1}}'
    bad = good.replace('{"External', 'null{"External').replace('{"External id": 1}', behind)
    path = tmp_path / "rank0.json"
    path.write_text(f'{{"traceEvents": [{good}, {bad}, {good}]}}')
    assert native.decode(path) is None
    assert len(decode(path).events) == 2
