"""What a trace file may cost: the limits hold in both decoders, can be set, and are named where they are reached."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.builders import TraceBuilder, write_run
from tests.components import require_module
from tests.places import ROOT
from tests.unit.read.decode.decoders import decode
from tracekit.cli import cli
from tracekit.errors import NotATraceError, UsageError
from tracekit.limits import Limits, limits, parse_limits
from tracekit.model.events import DecodedTrace
from tracekit.read.decode import event_array, portable
from tracekit.read.decode.event_array import search_events, tail_keys_text
from tracekit.read.files import inflate
from tracekit.read.files.identify import identify

EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'


def written(folder: Path, content: bytes, name: str = "rank0.json") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def limit_notes(decoded: DecodedTrace) -> list[str]:
    return [note.text for note in decoded.notes if note.id == "limit"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Limits()),
        ("ratio=7", Limits(ratio=7)),
        ("ratio=7 text_bytes=2G", Limits(ratio=7, text_bytes=2 << 30)),
        ("keys_bytes=3M event_bytes=5K", Limits(keys_bytes=3 << 20, event_bytes=5 << 10)),
        ("events=100G", Limits(events=(1 << 31) - 1)),
    ],
)
def test_a_variable_sets_limits(monkeypatch: pytest.MonkeyPatch, text: str, expected: Limits) -> None:
    monkeypatch.setenv("TRACEKIT_LIMITS", text)
    assert limits() == expected


@pytest.mark.parametrize("text", ["ratio", "ratio=", "ratio=0", "ratio=-1", "ratio=1e5", "speed=3", "ratio=5T"])
def test_what_is_no_limit_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(UsageError, match="is none of the limits"):
        parse_limits([text])
    monkeypatch.setenv("TRACEKIT_LIMITS", text)
    with pytest.raises(UsageError, match=f"^TRACEKIT_LIMITS={text}"):
        limits()


def test_an_option_precedes_the_variable_and_holds_for_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a trace of 40 kB WHEN fewer bytes may be read THEN it is said at which byte reading stopped."""
    monkeypatch.setenv("TRACEKIT_LIMITS", "text_bytes=50G")
    monkeypatch.setattr(inflate, "CHUNK_BYTES", 1000)
    trace = TraceBuilder(world_size=1).step(0, 0, 1000)
    for k in range(200):
        trace.op("aten::add", k, 1)
    run = write_run(tmp_path / "run", [trace])

    def notes(*options: str) -> list[str]:
        outcome = CliRunner().invoke(cli, ["analyze", str(run), "--json", "--jobs", "1", *options])
        assert outcome.exit_code == 0, outcome.stderr
        return [note["text"] for note in json.loads(outcome.stdout)["notes"] if note["id"] == "limit"]

    (note,) = notes("--limit", "text_bytes=20K")
    assert "(limit text_bytes=20480): reading stopped at byte " in note
    assert notes() == []
    assert limits() == Limits(text_bytes=50 << 30)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_files_have_one_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: str) -> None:
    """GIVEN some kB that unpack to 8 MB WHEN decoded THEN reading stops at the ratio, and it is said."""
    monkeypatch.setattr(inflate, "_UNCHECKED_BYTES", 1 << 20)
    text = b'{"traceEvents": [' + EVENT + b"," + EVENT.replace(b'"a"', b'"' + b"x" * (8 << 20) + b'"') + b"]}"
    compress: Callable[[bytes], bytes] = gzip.compress if packing == "gzip" else require_module("zstandard").compress
    path = written(tmp_path, compress(text))
    chunks = inflate.TextChunks(path)
    assert sum(map(len, chunks)) <= 400 * path.stat().st_size + 2 * inflate.CHUNK_BYTES
    assert chunks.cut_off is not None
    decoded = decode(path)
    assert len(decoded.events) == 1
    assert not decoded.complete
    assert "over 400 times its size (limit ratio=400): reading stopped" in limit_notes(decoded)[0]


def test_keys_behind_the_events_are_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_LIMITS", "keys_bytes=2000")
    good = b'{"traceEvents": [' + EVENT + b'], "distributedInfo": {"rank": 3, "world_size": 4}'
    for filler, expected in ((b"x" * 1000, []), (b"x" * 2000, ["keys_bytes=2000"])):
        decoded = decode(written(tmp_path, good + b', "more": "' + filler + b'"}'))
        assert (decoded.header.rank, decoded.complete, len(decoded.events)) == (3, True, 1)
        assert [note.partition("limit ")[2].partition(")")[0] for note in limit_notes(decoded)] == expected


def test_events_must_begin_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, b'{"a": "' + b"x" * 3000 + b'", "traceEvents": [' + EVENT + b"]}")
    assert len(decode(path).events) == 1
    monkeypatch.setenv("TRACEKIT_LIMITS", "keys_bytes=2000")
    for read in (decode, identify):
        with pytest.raises(NotATraceError, match=r"no traceEvents .* \(limit keys_bytes=2000\)") as caught:
            read(path)
        assert caught.value.kind == "limit"


def test_a_file_has_at_most_so_many_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN 300 events in small chunks WHEN 100 may be read THEN reading stops soon after them."""
    monkeypatch.setattr(inflate, "CHUNK_BYTES", 500)
    monkeypatch.setenv("TRACEKIT_LIMITS", "events=100")
    decoded = decode(written(tmp_path, b'{"traceEvents": [' + b",".join([EVENT] * 300) + b"]}"))
    assert 100 < len(decoded.events) < 120
    assert not decoded.complete
    assert "(limit events=100)" in limit_notes(decoded)[0]


def test_an_event_has_at_most_so_much_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a hundred events, then one of 50 kB WHEN 4 kB are allowed THEN the hundred are read."""
    monkeypatch.setattr(inflate, "CHUNK_BYTES", 500)
    monkeypatch.setenv("TRACEKIT_LIMITS", "event_bytes=4000")
    long = EVENT.replace(b'"a"', b'"' + b"x" * 50_000 + b'"')
    decoded = portable.decode(written(tmp_path, b'{"traceEvents": [' + b",".join([EVENT] * 100 + [long]) + b"]}"))
    assert len(decoded.events) == 100
    assert "(limit event_bytes=4000): reading stopped at byte 8" in limit_notes(decoded)[0]


def test_events_that_begin_with_an_unknown_key_are_no_long_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN events without the form by which the portable decoder sees where one ends THEN all are read."""
    monkeypatch.setattr(inflate, "CHUNK_BYTES", 500)
    monkeypatch.setenv("TRACEKIT_LIMITS", "event_bytes=4000")
    odd = b'{"other": 1, ' + EVENT[1:]
    decoded = decode(written(tmp_path, b'{"traceEvents": [' + b",".join([odd] * 100) + b"]}"))
    assert (len(decoded.events), decoded.complete, decoded.notes) == (100, True, ())


class Counted:
    """A pattern that adds up how much text it was applied to."""

    def __init__(self, pattern: object) -> None:
        self._pattern = pattern
        self.seen_bytes = 0

    def sub(self, by: bytes, text: bytes) -> bytes:
        self.seen_bytes += len(text)
        return self._pattern.sub(by, text)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    "nested",
    [
        b'"x": {"traceEvents": [1]}, ',
        b'"x\\"y": "\\"traceEvents\\": [", ',
        b'"\\"traceEvents": [1], ',
        b'"\\\\": {"a": "\\\\\\"", "traceEvents": [[]]}, ',
    ],
)
@pytest.mark.parametrize("times", [1, 50, 900])
def test_the_header_is_looked_through_once(monkeypatch: pytest.MonkeyPatch, nested: bytes, times: int) -> None:
    """GIVEN the key of the events in other objects and in texts THEN that of the trace is found, in linear time."""
    counted = Counted(event_array._STRING)
    monkeypatch.setattr(event_array, "_STRING", counted)
    text = b"{" + nested * times + b'"traceEvents": [' + EVENT + b"]}"
    head, _ = search_events(iter([text]))
    assert head is not None
    assert head.rest == EVENT + b"]}"
    assert json.loads(head.keys)
    assert counted.seen_bytes <= len(text) + 2 * times


def test_keys_at_the_end_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN text that ends like events at 20,000 places and then is cut off THEN few places are tried."""
    tried: list[int] = []

    class Decoder:
        def decode(self, text: bytes) -> object:
            tried.append(len(text))
            raise ValueError("Input data was truncated")

    monkeypatch.setattr(event_array, "_TOP_LEVEL", Decoder())
    assert tail_keys_text(b'"a": [{}],' * 20_000) == b"{}"
    assert len(tried) < 20


def test_many_small_members_are_not_copied_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN 3,000 empty gzip members THEN what is fed to inflaters is some kB for each at most."""
    fed: list[int] = []
    make = inflate._gzip_inflater

    class Inflater:
        def __init__(self) -> None:
            self._inner = make()

        def decompress(self, packed: bytes, longest: int) -> bytes:
            fed.append(len(packed))
            return bytes(self._inner.decompress(packed, longest))

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setattr(inflate, "_gzip_inflater", Inflater)
    text = b'{"traceEvents": [' + EVENT + b"]}"
    path = written(tmp_path, gzip.compress(text[:9]) + gzip.compress(b"") * 3000 + gzip.compress(text[9:]))
    assert b"".join(inflate.TextChunks(path)) == text
    assert max(fed) <= 4 << 10


def colliding() -> Iterator[tuple[int, int]]:
    """Pairs that an unseeded `process * golden ratio + thread` gives one value."""
    golden, k = 0x9E3779B97F4A7C15, 0
    while True:
        k += 1
        thread = (-k * golden) % (1 << 64)
        thread -= (1 << 64) * (thread >= 1 << 63)
        if abs(thread) < 10**18:
            yield k, thread


def test_tracks_that_were_chosen_to_collide_are_told_apart(tmp_path: Path) -> None:
    pairs = [pair for pair, _ in zip(colliding(), range(500), strict=False)]
    events = [EVENT.replace(b'"pid": 1, "tid": 1', b'"pid": %d, "tid": %d' % pair) for pair in pairs]
    decoded = decode(written(tmp_path, b'{"traceEvents": [' + b",".join(events) + b"]}"))
    assert [(track.pid, track.tid) for track in decoded.events.tracks] == pairs


def test_ids_beyond_64_bits_are_texts(tmp_path: Path) -> None:
    """GIVEN ids that have one hash as integers of Python THEN they are texts, whose hashes no file can choose."""
    ids = [7 + ((1 << 61) - 1) * k for k in range(9, 12)]
    events = [EVENT.replace(b'"pid": 1', b'"pid": %d' % i) for i in [*ids, 5]]
    decoded = decode(written(tmp_path, b'{"traceEvents": [' + b",".join(events) + b"]}"))
    assert len(set(map(hash, ids))) == 1
    assert [track.pid for track in decoded.events.tracks] == [*map(str, ids), 5]


def test_the_documentation_lists_every_limit_with_its_default() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    rows = re.findall(r"(?m)^\| `(\w+)` \| [^|]* \| ([\d,]+[MG]?) \|$", text)
    assert parse_limits(f"{name}={default.replace(',', '')}" for name, default in rows) == Limits()
    assert [name for name, _ in rows] == [field.name for field in fields(Limits)]
