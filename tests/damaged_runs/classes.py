"""Every class of damage, with what tracekit makes of it: a folder of eight good ranks and one damaged file.

The classes are the rows of docs/damaged-traces.md, in their order.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.builders import TraceBuilder
from tests.damaged_runs import events as e
from tests.damaged_runs import folder as f
from tests.damaged_runs import text as t
from tests.damaged_runs.good_run import BAD, GOOD, STEP_US, STEPS, rank_trace
from tests.trace_text import Layout

__all__ = ["CLASSES", "DamagedRun", "Outcome"]

Outcome = Literal["as undamaged", "n/a", "missing"]


@dataclass(frozen=True, kw_only=True)
class DamagedRun:
    """A damaged file and the known answer.

    Attributes:
        write: writes the file beside the good ranks; the path is `rank8.json` in their folder.
        bad_rank: what becomes of the rank; a tuple: its steps that count, which are as undamaged.
        says: a part of a note about the file; empty if nothing needs to be said.
        kind: of that note; empty if it depends on how much is read.
        file: the name of the file; None: no note names one.
        is_defect: whether `--strict` ends with exit code 3.
    """

    write: Callable[[Path], object]
    bad_rank: Outcome | tuple[int, ...]
    says: str = ""
    kind: str = ""
    file: str = f"rank{BAD}.json"
    is_defect: bool = True


def _trace(
    damage: Callable[[TraceBuilder], TraceBuilder], layout: Layout = "kineto", *, tail: bool = False
) -> Callable[[Path], object]:
    return lambda path: damage(rank_trace()).write(path, layout, tail=tail)


def _text(damage: Callable[[bytes], bytes], *, suffix: str = "", ordered: bool = False) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        trace = e.in_order_of_time(rank_trace()) if ordered else rank_trace()
        path.with_name(path.name + suffix).write_bytes(damage(trace.text()))

    return write


def _event(text: str) -> Callable[[Path], object]:
    """One more event, on the stream of kernels in the first step."""
    place = '"cat": "kernel", "pid": 0, "tid": 7, '
    return _text(lambda whole: t.with_event(whole, "{" + place + text + "}"))


def _of_rank(rank: int, **how: float) -> Callable[[Path], object]:
    """Another file of a good rank, from another process."""

    def write(path: Path) -> None:
        trace = rank_trace(rank, steps=STEPS, pid=777, **how)
        e.in_order_of_time(trace).write(path.with_name("another.json"))

    return write


def _all_steps(trace: TraceBuilder) -> TraceBuilder:
    return trace


def _attempt_of_all(path: Path) -> None:
    for rank in GOOD:
        trace = rank_trace(rank, steps=range(5, 11), at_us=-60e6, pid=700 + rank)
        e.in_order_of_time(trace).write(path.with_name(f"attempt0_{rank}.json"))


_GZ = f"rank{BAD}.json.gz"
_NO_TIMES = "its times are n/a and join no comparison"

CLASSES: dict[str, DamagedRun] = {
    # ---- truncated file, missing `]}`, array form never closed
    "cut off, operators first as Kineto writes them": DamagedRun(
        write=_text(lambda text: t.cut_off(text, 0.2)),
        bad_rank="n/a",
        kind="truncated",
        says="no step counts: the file ends before its kernels",
    ),
    "cut off among the kernels": DamagedRun(
        write=_text(lambda text: t.cut_off(text, 0.6)),
        bad_rank=(3, 4),
        kind="truncated",
        says="step 3-4 counts and step 5-8 does not: all its tracks go on behind the steps that count",
    ),
    "cut off in order of time": DamagedRun(
        write=_text(lambda text: t.cut_off(text, 0.6), ordered=True),
        bad_rank=(3, 4, 5),
        kind="truncated",
        says="step 3-5 counts and step 6 does not: its events are in order of time",
    ),
    "cut off in the header": DamagedRun(
        write=_text(lambda text: text[:200]), bad_rank="missing", kind="ignored_file", says="not a trace"
    ),
    "without ]}": DamagedRun(
        write=_text(t.without_closing),
        bad_rank="as undamaged",
        kind="truncated",
        says="step 3-8 counts: the profiler's last span is in it",
    ),
    "array form": DamagedRun(write=_text(t.as_array), bad_rank="as undamaged", is_defect=False),
    "array form never closed": DamagedRun(
        write=_text(t.array_never_closed), bad_rank="as undamaged", kind="truncated", says="step 3-8 counts"
    ),
    "second traceEvents": DamagedRun(
        write=_text(lambda text: t.second_events_array(text, rank_trace(2).text())),
        bad_rank="as undamaged",
        kind="duplicate_event",
        says="it has a second array of events behind the first; only the first is used",
    ),
    # ---- escapes, quotes, control characters, UTF-8
    "invalid escapes": DamagedRun(
        write=_text(lambda text: t.with_name(text, rb"C:\data\qux")),
        bad_rank="as undamaged",
        kind="escape",
        says="6 events with invalid escapes",
    ),
    "unescaped quotes": DamagedRun(
        write=_text(lambda text: t.with_name(text, b'a"b')),
        bad_rank="as undamaged",
        kind="malformed_event",
        says="6 events with missing or unusable fields left out",
    ),
    "control characters": DamagedRun(
        write=_text(lambda text: t.with_name(text, b"a\x01b")),
        bad_rank="as undamaged",
        kind="escape",
        says="control characters repaired",
    ),
    "invalid UTF-8": DamagedRun(
        write=_text(lambda text: t.with_name(text, b"caf\xe9")),
        bad_rank="as undamaged",
        kind="encoding",
        says="invalid UTF-8 repaired",
    ),
    # ---- NaN, Infinity, huge numbers, nesting
    "NaN": DamagedRun(
        write=_event('"ph": "X", "name": "k", "ts": NaN, "dur": 1'),
        bad_rank="as undamaged",
        kind="non_finite",
        says="1 event with NaN",
    ),
    "Infinity": DamagedRun(
        write=_event('"ph": "X", "name": "k", "ts": 1, "dur": Infinity'),
        bad_rank="as undamaged",
        kind="non_finite",
        says="1 event",
    ),
    "1e400": DamagedRun(
        write=_event('"ph": "X", "name": "k", "ts": 1e400, "dur": 1'),
        bad_rank="as undamaged",
        kind="non_finite",
        says="1 event",
    ),
    "5000-digit integers": DamagedRun(
        write=_event(f'"ph": "X", "name": "k", "ts": {"9" * 5000}, "dur": 1'),
        bad_rank="as undamaged",
        kind="non_finite",
        says="1 event",
    ),
    "nesting 200,000 deep": DamagedRun(
        write=_event(f'"ph": "X", "name": "k", "ts": 1, "dur": 1, "args": {{"a": {"[" * 200_000}{"]" * 200_000}}}'),
        bad_rank="as undamaged",
        kind="limit",
        says="1 event with deeper nesting",
    ),
    # ---- other ways to write the same
    "BOM": DamagedRun(write=_text(lambda text: b"\xef\xbb\xbf" + text), bad_rank="as undamaged", is_defect=False),
    "CRLF": DamagedRun(write=_trace(_all_steps, "crlf"), bad_rank="as undamaged", is_defect=False),
    "lone surrogates": DamagedRun(
        write=_text(lambda text: t.with_name(text, rb"\ud83d")), bad_rank="as undamaged", kind="escape", says="6 events"
    ),
    "compact layout": DamagedRun(write=_trace(_all_steps, "compact"), bad_rank="as undamaged", is_defect=False),
    "pretty layout": DamagedRun(write=_trace(_all_steps, "pretty"), bad_rank="as undamaged", is_defect=False),
    "metadata behind the events": DamagedRun(
        write=_trace(_all_steps, tail=True), bad_rank="as undamaged", is_defect=False
    ),
    "numbers as strings": DamagedRun(write=_text(t.numbers_as_strings), bad_rank="as undamaged", is_defect=False),
    "categories of torch 1.8": DamagedRun(
        write=_trace(e.categories_of_torch_1_8), bad_rank="as undamaged", is_defect=False
    ),
    # ---- packed
    "gzip cut off": DamagedRun(
        write=_text(lambda text: gzip.compress(text, mtime=0)[:1500], suffix=".gz", ordered=True),
        bad_rank=(3, 4),
        kind="truncated",
        says="the gzip stream is cut off",
        file=_GZ,
    ),
    "gzip of several members": DamagedRun(
        write=_text(t.members, suffix=".gz"), bad_rank="as undamaged", is_defect=False
    ),
    "gzip with a wrong checksum": DamagedRun(
        write=_text(t.bad_checksum, suffix=".gz"),
        bad_rank="n/a",
        kind="truncated",
        says="no step counts: any part of the file may be wrong",
        file=_GZ,
    ),
    "gzip with a changed byte": DamagedRun(
        write=_text(t.flipped_byte, suffix=".gz", ordered=True),
        bad_rank="n/a",
        kind="truncated",
        says="no step counts: any part of the file may be wrong",
        file=_GZ,
    ),
    "gzip with garbage behind": DamagedRun(
        write=_text(t.trailing_garbage, suffix=".gz"),
        bad_rank="as undamaged",
        kind="encoding",
        says="the end of the gzip stream",
        file=_GZ,
    ),
    "plain text named .gz": DamagedRun(
        write=_text(lambda text: text, suffix=".gz"), bad_rank="as undamaged", is_defect=False
    ),
    "gzip named .json": DamagedRun(
        write=_text(lambda text: gzip.compress(text, mtime=0)), bad_rank="as undamaged", is_defect=False
    ),
    # ---- no traces
    "empty file": DamagedRun(write=f.empty_file, bad_rank="missing", kind="empty", says="the file is empty; left out"),
    "JSON that is no trace": DamagedRun(
        write=f.json_that_is_no_trace, bad_rank="missing", kind="ignored_file", says="not a trace"
    ),
    "no events": DamagedRun(write=f.trace_without_events, bad_rank="missing", kind="empty", says="no events in it"),
    "folder named like a trace": DamagedRun(
        write=f.folder_named_like_a_trace, bad_rank="missing", says="8 of 9 ranks", kind="missing_rank", file=""
    ),
    "FIFO": DamagedRun(write=f.fifo, bad_rank="missing", kind="ignored_file", says="not a regular file"),
    "broken link": DamagedRun(write=f.broken_link, bad_rank="missing", kind="ignored_file", says="a link to nothing"),
    "link to itself": DamagedRun(
        write=f.link_to_itself, bad_rank="missing", kind="ignored_file", says="symbolic links"
    ),
    "unfinished export": DamagedRun(
        write=lambda path: f.unfinished_export(path, t.cut_off(e.in_order_of_time(rank_trace()).text(), 0.6)),
        bad_rank=(3, 4, 5),
        kind="unfinished_tmp",
        says="the job died while it wrote this file",
        file=f"rank{BAD}.json.tmp",
    ),
    "gzip bomb": DamagedRun(
        write=_text(t.gzip_bomb, suffix=".gz"),
        bad_rank="n/a",
        says="no step counts: the file ends before its kernels",
        file=_GZ,
    ),
    # ---- events
    "null instead of an event": DamagedRun(
        write=_text(lambda text: t.with_event(text, "null")),
        bad_rank="as undamaged",
        kind="malformed_event",
        says="1 event",
    ),
    "a number instead of an event": DamagedRun(
        write=_text(lambda text: t.with_event(text, "7")),
        bad_rank="as undamaged",
        kind="malformed_event",
        says="1 event",
    ),
    "null names": DamagedRun(
        write=_event('"ph": "i", "name": null, "ts": 1'), bad_rank="as undamaged", is_defect=False
    ),
    "missing dur": DamagedRun(
        write=_event('"ph": "X", "name": "k", "ts": 4396970'),
        bad_rank="as undamaged",
        kind="malformed_event",
        says="1 event with missing or unusable fields",
    ),
    "B and E pairs": DamagedRun(write=_trace(e.begin_and_end_events), bad_rank="as undamaged", is_defect=False),
    "other phases": DamagedRun(write=_trace(e.with_other_phases), bad_rank="as undamaged", is_defect=False),
    "text as pid": DamagedRun(
        write=_trace(lambda trace: e.with_pid(trace, "python")), bad_rank="as undamaged", is_defect=False
    ),
    "no pid": DamagedRun(write=_trace(e.without_pid), bad_rank="as undamaged", is_defect=False),
    # ---- times
    "negative dur": DamagedRun(
        write=_event('"ph": "X", "name": "k", "ts": 4396970, "dur": -5'),
        bad_rank="as undamaged",
        kind="negative_duration",
        says="1 event",
    ),
    "ts of zero": DamagedRun(
        write=_trace(lambda trace: e.with_outlier(trace, at_us=-(10**13))),
        bad_rank="as undamaged",
        kind="out_of_range",
        says="1 event",
    ),
    "wrapped uint64": DamagedRun(
        write=_event('"ph": "X", "name": "k", "ts": 18446744073709551615, "dur": 1'),
        bad_rank="as undamaged",
        kind="malformed_event",
        says="1 event",
    ),
    "nanoseconds for microseconds": DamagedRun(
        write=_trace(e.nanoseconds_for_microseconds),
        bad_rank="missing",
        kind="unit",
        says="its times are 1000 times those of the other files",
    ),
    "durations times 1000": DamagedRun(
        write=_trace(e.durations_times_1000),
        bad_rank="n/a",
        kind="unit",
        says="its steps take 1,000 times as long as those of the other ranks, as if written in another unit",
    ),
    # ---- order
    "in order of time": DamagedRun(write=_trace(e.in_order_of_time), bad_rank="as undamaged", is_defect=False),
    "in reverse order": DamagedRun(write=_trace(e.in_reverse_order), bad_rank="as undamaged", is_defect=False),
    "overlapping slices on a track": DamagedRun(
        write=_trace(e.overlapping_slices), bad_rank="as undamaged", is_defect=False
    ),
    "events of another file": DamagedRun(
        write=_trace(lambda trace: e.with_events_of(trace, rank_trace(2))),
        bad_rank="n/a",
        kind="step_mismatch",
        says=f"it mixes the events of 2 processes (pid 4002, 4008): {_NO_TIMES}",
    ),
    "events of another file of the same process": DamagedRun(
        write=_trace(lambda trace: e.with_events_of(trace, rank_trace(at_us=-60_000))),
        bad_rank="n/a",
        kind="step_mismatch",
        says=f"steps 3-8 are in it more than once: {_NO_TIMES}",
    ),
    "all starts equal": DamagedRun(
        write=_trace(e.equal_starts), bad_rank="n/a", kind="step_mismatch", says="steps 3 and 4 overlap in time"
    ),
    # ---- duplicate correlation ids
    "duplicate correlation ids": DamagedRun(
        write=_trace(e.duplicate_correlation_ids),
        bad_rank="as undamaged",
        kind="duplicate_event",
        says="42 kernels and copies have the correlation id of several launches; the last one counts",
    ),
    # ---- rank
    "no distributedInfo": DamagedRun(
        write=_trace(e.without_distributed_info), bad_rank="as undamaged", is_defect=False
    ),
    "the name contradicts the trace": DamagedRun(
        write=lambda path: rank_trace().write(path.with_name("rank3_of_9.json")),
        bad_rank="as undamaged",
        kind="rank_mismatch",
        says="the trace names rank 8, the file's name rank 3; it counts as rank 8",
        file="rank3_of_9.json",
    ),
    "the pid of another rank": DamagedRun(
        write=lambda path: rank_trace(pid=4000).write(path), bad_rank="as undamaged", is_defect=False
    ),
    "odd ranks of a group": DamagedRun(
        write=_trace(lambda trace: e.with_ranks_of_group(trace, [2**70, None, "x"])),
        bad_rank="as undamaged",
        kind="not_available",
        says="the ranks of process group 'default_pg' cannot be read",
        is_defect=False,
    ),
    # ---- attempts, windows, steps
    "an older attempt of one rank, in order of time": DamagedRun(
        write=_of_rank(3, at_us=-60e6),
        bad_rank="missing",
        kind="other_run",
        says="(another.json) is there too",
        file="another.json",
    ),
    "a newer attempt of one rank, in order of time": DamagedRun(
        write=_of_rank(3, at_us=60e6),
        bad_rank="missing",
        kind="other_run",
        says="(another.json) is there too",
        file="another.json",
    ),
    "an older attempt of all ranks, in order of time": DamagedRun(
        write=_attempt_of_all,
        bad_rank="missing",
        kind="other_run",
        says="(8 ranks) is there too",
        file="",
    ),
    "missing rank": DamagedRun(
        write=lambda path: None, bad_rank="missing", kind="missing_rank", says="8 of 9 ranks; missing: 8", file=""
    ),
    "fewer steps": DamagedRun(
        write=lambda path: rank_trace(steps=range(3, 6)).write(path),
        bad_rank=(3, 4, 5),
        kind="step_mismatch",
        says="it completed 3 of the 6 steps",
    ),
    "shifted step numbers": DamagedRun(
        write=_trace(lambda trace: e.renumbered_steps(trace, lambda n: n + 1)),
        bad_rank="n/a",
        kind="step_mismatch",
        says=f"its steps are numbered 1 higher than those of the other ranks: {_NO_TIMES}",
    ),
    "a repeated step number": DamagedRun(
        write=_trace(lambda trace: e.renumbered_steps(trace, lambda n: n - (n > 5))),
        bad_rank="n/a",
        kind="step_mismatch",
        says="step 5 is in it more than once",
    ),
    "step numbers beyond 64 bits": DamagedRun(
        write=_trace(lambda trace: e.renumbered_steps(trace, lambda n: n + 2**70)),
        bad_rank="n/a",
        kind="step_mismatch",
        says="the other ranks completed 3-8",
    ),
    "the span of a step is lost": DamagedRun(
        write=_trace(lambda trace: e.without(trace, lambda event: event["name"] == "ProfilerStep#5")),
        bad_rank=(3, 6, 7, 8),
        kind="unterminated",
        says="step 4 is incomplete and does not count",
    ),
    "no ProfilerStep": DamagedRun(
        write=_trace(e.without_steps), bad_rank="n/a", kind="step_mismatch", says="the other ranks completed 3-8"
    ),
    # ---- lost GPU records
    "no device records": DamagedRun(
        write=_trace(e.without_device_records),
        bad_rank="n/a",
        kind="lost_device_records",
        says="it was recorded without CUDA activity",
    ),
    "no device records, nor anything that tells of a device": DamagedRun(
        write=_trace(lambda trace: e.without_signs_of_device(e.without_device_records(trace))),
        bad_rank="n/a",
        kind="no_device_records",
        says=f"it has no kernels, though most ranks have some: {_NO_TIMES}",
    ),
    "no kernels from a step on": DamagedRun(
        write=_trace(lambda trace: e.without_kernels_from(trace, step=6)),
        bad_rank=(3, 4, 5),
        kind="lost_device_records",
        says="steps 6-8 lack device records",
    ),
    # ---- clocks
    "another base time": DamagedRun(write=_trace(e.with_another_base_time), bad_rank="as undamaged", is_defect=False),
    "a clock that is seconds ahead": DamagedRun(
        write=_trace(lambda trace: e.clock_ahead(trace, by_us=7e6)),
        bad_rank="as undamaged",
        kind="clock_step",
        says="its clock is +7,000.000 ms off",
        file="",
    ),
    "a clock that jumps": DamagedRun(
        write=_trace(lambda trace: e.step_of_the_wall_clock(trace, at_us=3.2 * STEP_US, by_us=500_000)),
        bad_rank=(3, 4, 7, 8),
        kind="clock_step",
        says="rank8.json: step 5-6 may contain the jump and does not count",
    ),
    "a clock that is set back": DamagedRun(
        write=_trace(lambda trace: e.step_of_the_wall_clock(trace, at_us=3.2 * STEP_US, by_us=-2000)),
        bad_rank="n/a",
        kind="step_mismatch",
        says="its steps are not in the order of their numbers (its clock was set back?)",
    ),
    "the clock of the host alone jumps": DamagedRun(
        write=_trace(lambda trace: e.step_of_the_host_clock(trace, at_us=3.2 * STEP_US, by_us=500_000)),
        bad_rank="n/a",
        kind="step_mismatch",
        says="ms before they are launched, which is too much to correct",
    ),
    "kernels shortly before their launch": DamagedRun(
        write=_trace(lambda trace: e.kernels_before_their_launch(trace, by_us=300)),
        bad_rank="as undamaged",
        kind="clock_step",
        says="kernels begin up to 0.291 ms before they are launched: the device's clock is behind",
    ),
    "kernels long before their launch": DamagedRun(
        write=_trace(lambda trace: e.kernels_before_their_launch(trace, by_us=5000)),
        bad_rank="n/a",
        kind="step_mismatch",
        says=f"kernels begin 4.991 ms before they are launched, which is too much to correct: {_NO_TIMES}",
    ),
}
