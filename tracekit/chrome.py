"""Write one page of a merged trace in Chrome's trace event format.

A page is a list of events separated by commas, with nothing before or after it. Different processes can write the
pages; `merged.merge.Document` joins them. Columns of events become lines of JSON, one line an event. Rows are grouped
by which optional columns they have, so that many are written with one template. Times are formatted from integers: a
float of microseconds since 1970 has a precision of 250 ns only.

Tracks. The format knows processes and threads, but no tracks under tracks. So every track is a thread of its process,
whatever it was put under. Viewers sort the threads of a process by `thread_sort_index` (chrome://tracing) or by tid
(Perfetto), so both follow from the track's parents and its order. A track without slices is not shown. Counters belong
to their process, and viewers choose their position.

Overlap. Of two slices of a thread that cross, viewers drop one without a word. So slices that cross others go to
further threads, "<name> · overlap 2" and so on. A slice is written after those that contain it, because viewers derive
its depth from that order.

Arrows. The event of an arrow is written right after its slice, at the slice's start. The format binds it by thread and
time: of slices that start together and have a duration, viewers draw it to the innermost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracekit.limits import limits
from tracekit.model.events import ABSENT, Bool, Float64, Int32, Int64
from tracekit.model.metadata import MERGED_KEY
from tracekit.model.texts import unicode_text
from tracekit.read.decode.field_values import is_in_range
from tracekit.render.slices import (
    MAX_DEPTH,
    RUN_PAGE,
    Argument,
    FreeTrackRows,
    Rows,
    Sink,
    Slices,
    split_track_rows,
    track_row_boundaries,
)
from tracekit.version import __version__

_MARGIN_NS = 10**9  # tracks that tracekit adds may begin a little before the first event
_BLOCK = 1 << 14  # values of a counter that are written at once
_BLOCK_BYTES = 4 << 20  # text of slices that is written at once, about
_SLICE_BYTES = 256  # text of one slice without extra arguments, about
_SEPARATOR = ",\n"
# A thread's id is its position on the page: 13 bits for the rank, 4 for the position in the process, 10 for that under
# another track, 4 for the track row. A track that does not fit takes the next free id. Ids are larger than those of
# processes and fit into 31 bits.
_FIRST_ID, _RANK_IDS, _RANKS = 1 << 20, 1 << 18, (1 << 13) - 8
_TOP, _UNDER, _TRACK_ROW = 1 << 14, 1 << 4, 1
_SLOTS = {_TOP: _RANK_IDS // _TOP, _UNDER: _TOP // _UNDER, _TRACK_ROW: _UNDER}
_ROOM_BELOW = {_TOP: _UNDER, _UNDER: _TRACK_ROW, _TRACK_ROW: _TRACK_ROW}
_PHASES = dict(enumerate("stf"))  # of an arrow's event, by index in `ROLES`
_DEPTH = MAX_DEPTH // 2

MICROSECONDS = "%d.%03d"
"""Part of a template, for the two columns of `microseconds`."""
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|(-?[0-9][0-9.eE+-]*)|\s+')


@dataclass(frozen=True, kw_only=True)
class ChromeFormat:
    """Chrome's format, as `TraceFormat` describes formats.

    Viewers read `ts` as a double, which would lose the nanoseconds of times since 1970. So `ts` counts from a base. The
    document holds it as `baseTimeNanoseconds`, as Kineto's files do.

    Attributes:
        base_ns: Time since the Unix epoch from which `ts` counts; nothing is before it.
        attributes: Texts about the trace as a whole, by name.
    """

    base_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    separator = b",\n"
    tail = b"\n]}\n"

    @classmethod
    def begin(cls, first_ns: int, describe: Callable[[int], Mapping[str, str]]) -> ChromeFormat:
        base_ns = first_ns - _MARGIN_NS
        return cls(base_ns=base_ns, attributes=describe(base_ns))

    @property
    def head(self) -> bytes:
        merged = {"version": __version__, **self.attributes}
        head = {"schemaVersion": 1, "baseTimeNanoseconds": self.base_ns, MERGED_KEY: merged}
        return (json.dumps(head, indent=0)[:-2] + ',\n"traceEvents": [\n').encode()

    def writer(self, stream: Sink, rank_index: int) -> ChromeWriter:
        return ChromeWriter(stream, rank_index, base_ns=self.base_ns)


@dataclass(frozen=True, kw_only=True)
class ChromeTrack:
    """A process, thread or counter.

    Attributes:
        pid: Id of the process.
        name: Name of the track.
        tid: Id of the thread; 0 for processes and counters.
        room: Distance between the ids of two tracks under it.
        unit: Unit of a counter; empty for processes and threads.
    """

    pid: int
    name: str
    tid: int = 0
    room: int = 0
    unit: str = ""


class ChromeWriter:
    """Writes one rank's events to a binary stream. `TraceWriter` describes the methods.

    `rank`, an integer >= 0, determines the ids of the process and its threads. Times count from `base_ns` (Unix epoch),
    and none may be before it. Memory grows with the number of distinct strings alone.

        with path.open("wb") as stream:
            writer = ChromeWriter(stream, rank=3, base_ns=base_ns)
            page = writer.add_rank_page("rank 3 · host", order=3)
            writer.write_slices(writer.add_track("main", parent=page), slices)
    """

    def __init__(self, stream: Sink, rank: int, *, base_ns: int) -> None:
        self._pid = rank + 1  # 0 is Perfetto's idle process
        self.left_out = 0
        self._stream = stream
        self._base_ns = base_ns
        self._first_id = _FIRST_ID + rank % _RANKS * _RANK_IDS
        self._is_empty = True
        self._taken: set[int] = set()
        self._named: set[int] = set()
        self._free_track_rows: dict[int, FreeTrackRows] = {}
        self._track_rows: dict[tuple[int, int], ChromeTrack] = {}
        self._strings = JsonStrings()
        self._extra_args = JsonStrings(json_members)

    def add_run_page(self) -> ChromeTrack:
        return self._add_process(RUN_PAGE, 0)

    def add_rank_page(self, name: str, *, order: int = 0) -> ChromeTrack:
        return self._add_process(name, order + 1)

    def add_track(self, name: str, *, parent: ChromeTrack, order: int = 0) -> ChromeTrack:
        tid = (parent.tid or self._first_id) + parent.room * min(order + 1, _SLOTS[parent.room] - 1)
        return ChromeTrack(pid=parent.pid, name=name, tid=self._free(tid), room=_ROOM_BELOW[parent.room])

    def add_counter(self, name: str, *, unit: str = "", parent: ChromeTrack, order: int = 0) -> ChromeTrack:
        """`order` is ignored: the format cannot express it."""
        del order
        return ChromeTrack(pid=parent.pid, name=name, unit=unit or "value")

    def write_slices(self, track: ChromeTrack, slices: Slices) -> int:
        """Raises ValueError for a start before `base_ns`."""
        if slices.start_ns.min(initial=self._base_ns) < self._base_ns:
            raise ValueError("a slice starts before the base time")
        if len(slices) == 0:
            return 0
        rows = slices.rows_of(np.arange(len(slices)))
        groups = PresenceGroups([argument.known(rows) for argument in slices.arguments], len(slices))
        free = self._free_track_rows.setdefault(track.tid, FreeTrackRows())
        track_rows = _track_rows(slices.start_ns, slices.duration_ns)
        self.left_out += len(slices) - sum(map(len, track_rows))
        end_ns = slices.start_ns + slices.duration_ns
        numbers = free.take(
            (int(slices.start_ns[track_row].min()), int(end_ns[track_row].max())) for track_row in track_rows
        )
        for number, track_row in zip(numbers, track_rows, strict=True):
            on = self._track_row(track, number) if number else track
            self._name(on)
            for block in _blocks(slices, track_row):
                self._write_block(on, slices, block, groups)
        return len(track_rows)

    def write_counter(self, track: ChromeTrack, time_ns: Int64, values: Float64) -> None:
        """NaN and infinity are left out, as JSON has neither; viewers show the value before them instead.

        Raises ValueError for a time before `base_ns`.
        """
        if time_ns.min(initial=self._base_ns) < self._base_ns:
            raise ValueError("a value of a counter is before the base time")
        known = np.flatnonzero(np.isfinite(values))
        fields = f'"name":{json_text(track.name)},"pid":{track.pid},"ts":'.replace("%", "%%")
        unit = json_text(track.unit).replace("%", "%%")
        template = f'{{"ph":"C",{fields}{MICROSECONDS},"args":{{{unit}:%r}}}}'
        for rows in np.split(known, range(_BLOCK, len(known), _BLOCK)):
            columns = [*microseconds(time_ns[rows] - self._base_ns), values[rows].tolist()]
            self._write(format_lines(template, columns))

    def _write_block(self, on: ChromeTrack, slices: Slices, block: Int64, groups: PresenceGroups) -> None:
        """Write the slices in `block`, in their order, each followed by the events of its arrows."""
        positions: list[Int64] = []
        lines: list[str] = []
        events_a_slice = 1 + len(slices.flows)
        start_ns, rows = slices.start_ns[block] - self._base_ns, slices.rows_of(block)
        duration_ns = slices.duration_ns[block]
        for at, columns in groups.of(block):
            arguments = [slices.arguments[column] for column in columns]
            lines += self._slice_lines(on, slices, rows[at], start_ns[at], duration_ns[at], arguments)
            positions.append(at * events_a_slice)
        for number, flows in enumerate(slices.flows):
            at = np.flatnonzero(flows.ids[rows])
            template = (
                f'{{"ph":"%s","bp":"e","cat":"flow","name":"flow","id":"0x%x","pid":{on.pid},"tid":{on.tid},'
                f'"ts":{MICROSECONDS}}}'
            )
            phases = [_PHASES[role] for role in flows.role[rows[at]].tolist()]
            lines += format_lines(template, [phases, flows.ids[rows[at]].tolist(), *microseconds(start_ns[at])])
            positions.append(at * events_a_slice + number + 1)
        order = np.argsort(np.concatenate(positions), kind="stable")
        self._write([lines[line] for line in order.tolist()])

    def _slice_lines(
        self,
        on: ChromeTrack,
        slices: Slices,
        rows: Rows,
        start_ns: Int64,
        duration_ns: Int64,
        arguments: list[Argument],
    ) -> list[str]:
        """Return an event for each slice; all of them have the same `arguments`."""
        members = ",".join(f"{json_text(argument.name)}:".replace("%", "%%") + "%s" for argument in arguments)
        extra = "" if slices.extra_args is None else "%s"
        colour = "" if slices.look is None else f'"cname":"{slices.look.chrome_name}",'
        template = (
            f'{{"ph":"X",{colour}"cat":%s,"name":%s,"pid":{on.pid},"tid":{on.tid},"ts":{MICROSECONDS},"dur":{MICROSECONDS}'
            + (f',"args":{{{members}{extra}}}}}' if arguments else extra + "}")
        )
        columns: list[Sequence[object]] = [
            self._strings.of(slices.strings, slices.category[rows]),
            self._strings.of(slices.strings, slices.name[rows]),
            *microseconds(start_ns),
            *microseconds(duration_ns),
            *(argument_texts(argument, rows, slices.strings, self._strings) for argument in arguments),
        ]
        if slices.extra_args is not None:
            before, after = (",", "") if arguments else (',"args":{', "}")
            extra_args = self._extra_args.of(slices.strings, slices.extra_args[rows])
            columns.append([before + text + after if text else "" for text in extra_args])
        return format_lines(template, columns)

    def _add_process(self, name: str, order: int) -> ChromeTrack:
        self._describe("process", f'"pid":{self._pid}', name, order)
        return ChromeTrack(pid=self._pid, name=name, room=_TOP)

    def _track_row(self, track: ChromeTrack, track_row: int) -> ChromeTrack:
        if (track.tid, track_row) not in self._track_rows:
            name = f"{track.name} · overlap {track_row + 1}"
            self._track_rows[track.tid, track_row] = ChromeTrack(
                pid=track.pid, name=name, tid=self._free(track.tid + track_row)
            )
        return self._track_rows[track.tid, track_row]

    def _free(self, tid: int) -> int:
        while tid in self._taken:
            tid += 1
        self._taken.add(tid)
        return tid

    def _name(self, track: ChromeTrack) -> None:
        if track.tid in self._named:
            return
        self._named.add(track.tid)
        self._describe("thread", f'"pid":{track.pid},"tid":{track.tid}', track.name, track.tid)

    def _describe(self, what: str, which: str, name: str, order: int) -> None:
        lines = [f'{{"ph":"M","name":"{what}_sort_index",{which},"args":{{"sort_index":{order}}}}}']
        if name:  # Perfetto counts an empty name as an error
            lines.append(f'{{"ph":"M","name":"{what}_name",{which},"args":{{"name":{json_text(name)}}}}}')
        self._write(lines)

    def _write(self, lines: list[str]) -> None:
        if lines:
            text = ("" if self._is_empty else _SEPARATOR) + _SEPARATOR.join(lines)
            self._stream.write(text.encode())
            self._is_empty = False


def _blocks(slices: Slices, track_row: Int64) -> Sequence[Int64]:
    """Split the slices of a track row into blocks of some megabytes of text."""
    size_bytes = np.full(len(track_row), _SLICE_BYTES, dtype=np.int64)
    if slices.extra_args is not None:
        ids = slices.extra_args[slices.rows_of(track_row)]
        lengths = np.zeros(len(slices.strings) + 1, dtype=np.int64)  # `ABSENT` indexes the last
        for text in np.unique(ids[ids >= 0]).tolist():
            lengths[text] = len(slices.strings[text])
        size_bytes += lengths[ids]
    return np.split(track_row, np.flatnonzero(np.diff(np.cumsum(size_bytes) // _BLOCK_BYTES)) + 1)


def _track_rows(start_ns: Int64, duration_ns: Int64) -> list[Int64]:
    """Return the slices of each track row, parents before their children.

    Viewers nest slices of duration 0 that share a time. So half of the depth is reserved for those. Slices that would
    need more track rows than the limit allows are left out.
    """
    track_rows, crowded = [], []
    for boundaries in track_row_boundaries(start_ns, duration_ns, _DEPTH):
        rows = boundaries[boundaries >= 0].astype(np.int64)
        fits = _number_among_instants(start_ns[rows], duration_ns[rows]) < _DEPTH
        track_rows.append(rows[fits])
        crowded.append(rows[~fits])
    rows = np.concatenate(crowded)
    rows = rows[np.argsort(start_ns[rows], kind="stable")]
    track_row = _number_among_instants(start_ns[rows], duration_ns[rows]) // _DEPTH
    track_row[track_row >= limits().lanes] = ABSENT
    return track_rows + (split_track_rows(rows, track_row) if len(rows) else [])


def _number_among_instants(start_ns: Int64, duration_ns: Int64) -> Int64:
    """Return how many slices of duration 0 precede each slice of duration 0 at its time, int64 [n]; 0 for others."""
    number = np.arange(len(start_ns))
    follows = (duration_ns[1:] == 0) & (duration_ns[:-1] == 0) & (start_ns[1:] == start_ns[:-1])
    first = number.copy()
    first[1:][follows] = 0
    return np.asarray(number - np.maximum.accumulate(first))


def format_lines(template: str, columns: Sequence[Iterable[object]]) -> list[str]:
    """Return a line for each row. `template` has a `%` field for each column."""
    return [template % cells for cells in zip(*columns, strict=True)]


def microseconds(time_ns: Int64) -> list[list[int]]:
    """Return whole microseconds, and the remaining nanoseconds, of times >= 0."""
    whole, rest = np.divmod(time_ns, 1000)
    return [whole.tolist(), rest.tolist()]


def json_text(text: str) -> str:
    """Return `text` as JSON, in quotes, with question marks for lone surrogates, which UTF-8 cannot express.

    Perfetto's trace processor (v52) refuses a whole trace for an escaped surrogate pair. It also refuses one for a text
    that ends with an escaped backslash: it takes the quote after that for a part of the text.
    """
    encoded = json.dumps(text, ensure_ascii=False)
    if text.endswith("\\"):
        encoded = encoded[:-3] + '\\u005c"'
    return unicode_text(encoded)


def json_members(text: str) -> str:
    """Return the members of a JSON object, without the braces and without white space.

    Strings and keys are formatted by `json_text`. Numbers keep their digits; those that are out of the range of readers
    of JSON become texts.
    """
    return _TOKEN.sub(_formatted, text)[1:-1]


def _formatted(token: re.Match[str]) -> str:
    string, number = token.groups(default="")
    if string:
        return json_text(json.loads(string))
    return number if not number or is_in_range(number) else json_text(number)


class JsonStrings:
    """A cache of what `encode` returns for strings, over all tables of strings that share it."""

    def __init__(self, encode: Callable[[str], str] = json_text) -> None:
        self._encode = encode
        self._known: dict[str, str] = {}

    def of(self, strings: Sequence[str], ids: np.typing.NDArray[np.int32]) -> list[str]:
        """Return the encoded string of each of the `ids`, indexes into `strings`, int32 [n]. `ABSENT` is encoded as an
        empty text."""
        table = np.empty(len(strings) + 1, dtype=object)
        table[-1] = self._encoded("")
        for string_id in np.unique(ids[ids >= 0]).tolist():
            table[string_id] = self._encoded(strings[string_id])
        texts: list[str] = table[ids].tolist()
        return texts

    def _encoded(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = self._encode(text)
        return self._known[text]


def argument_texts(argument: Argument, rows: Rows, strings: Sequence[str], encoded: JsonStrings) -> list[object]:
    """Return the values of `rows` as they are put into a `%s` field."""
    values = argument.values[rows]
    if argument.is_text:
        return list(encoded.of(strings, values.astype(np.int32, copy=False)))
    return list(values.tolist())


class PresenceGroups:
    """Groups of n rows that have the same columns.

    present: a mask for each column, bool [n]; None: all rows have the column.
    """

    def __init__(self, present: Sequence[Bool | None], rows: int) -> None:
        code = np.zeros(rows, dtype=np.min_scalar_type((1 << len(present)) - 1))  # a bit for each column
        for bit, mask in enumerate(present):
            code |= np.array(True if mask is None else mask, dtype=code.dtype) << code.dtype.type(bit)
        occurring, group = np.unique(code, return_inverse=True)  # few of all combinations occur
        self._group = group.astype(np.min_scalar_type(len(occurring)))  # numpy sorts a narrow type by counting
        self._sets = [[bit for bit in range(len(present)) if number >> bit & 1] for number in occurring.tolist()]

    def of(self, rows: Int32 | Int64) -> Iterator[tuple[Int64, list[int]]]:
        """Yield for each group among `rows`, integers [k], the positions of its rows in `rows`, and its columns."""
        group = self._group[rows]
        order = np.argsort(group, kind="stable")
        edges = np.cumsum(np.bincount(group, minlength=len(self._sets)))
        for positions, columns in zip(np.split(order, edges[:-1]), self._sets, strict=True):
            if len(positions):
                yield positions, columns
