"""Classes of damage in how a file is written: its text, how it is packed, what is no trace, single events.

They are rows of docs/damaged-traces.md, in their order.
"""

from __future__ import annotations

import gzip

from tests.builders import TraceBuilder
from tests.damaged_runs import events as e
from tests.damaged_runs import folder as f
from tests.damaged_runs import text as t
from tests.damaged_runs.damaged_run import DamagedRun, of_text, of_trace, with_one_event
from tests.damaged_runs.good_run import BAD, rank_trace

_GZ = f"rank{BAD}.json.gz"


def _all_steps(trace: TraceBuilder) -> TraceBuilder:
    return trace


CLASSES_OF_TEXT: dict[str, DamagedRun] = {
    # ---- truncated file, missing `]}`, array form never closed
    "cut off, operators first as Kineto writes them": DamagedRun(
        write=of_text(lambda text: t.cut_off(text, 0.2)),
        bad_rank="excluded",
        kind="truncated",
        says="no step counts: the file ends before its kernels",
    ),
    "cut off among the kernels": DamagedRun(
        write=of_text(lambda text: t.cut_off(text, 0.6)),
        bad_rank=(3, 4),
        kind="truncated",
        says="step 3-4 counts and step 5-8 does not: all its tracks go on behind the steps that count",
    ),
    "cut off in order of time": DamagedRun(
        write=of_text(lambda text: t.cut_off(text, 0.6), ordered=True),
        bad_rank=(3, 4, 5),
        kind="truncated",
        says="step 3-5 counts and step 6 does not: its events are in order of time",
    ),
    "cut off in the header": DamagedRun(
        write=of_text(lambda text: text[:200]), bad_rank="missing", kind="ignored-file", says="not a trace"
    ),
    "without ]}": DamagedRun(
        write=of_text(t.without_closing),
        bad_rank="as undamaged",
        kind="truncated",
        says="step 3-8 counts: the profiler's last span is in it",
    ),
    "array form": DamagedRun(write=of_text(t.as_array), bad_rank="as undamaged", is_defect=False),
    "array form never closed": DamagedRun(
        write=of_text(t.array_never_closed), bad_rank="as undamaged", kind="truncated", says="step 3-8 counts"
    ),
    "second traceEvents": DamagedRun(
        write=of_text(lambda text: t.second_events_array(text, rank_trace(2).text())),
        bad_rank="as undamaged",
        kind="duplicate-event",
        says="it has a second array of events behind the first; only the first is used",
    ),
    "second trace": DamagedRun(
        write=of_text(lambda text: text + rank_trace(2).text()),
        bad_rank="as undamaged",
        kind="duplicate-event",
        says="it has a second array of events behind the first; only the first is used",
    ),
    "UTF-16": DamagedRun(
        write=of_text(lambda text: text.decode().encode("utf-16")),
        bad_rank="missing",
        kind="ignored-file",
        says="not a trace but text in UTF-16; left out",
    ),
    # ---- escapes, quotes, control characters, UTF-8
    "invalid escapes": DamagedRun(
        write=of_text(lambda text: t.with_name(text, rb"C:\data\qux")),
        bad_rank="as undamaged",
        kind="escape",
        says="6 events with invalid escapes",
    ),
    "unescaped quotes": DamagedRun(
        write=of_text(lambda text: t.with_name(text, b'a"b')),
        bad_rank="as undamaged",
        kind="malformed-event",
        says="6 events with missing or unusable fields left out",
    ),
    "control characters": DamagedRun(
        write=of_text(lambda text: t.with_name(text, b"a\x01b")),
        bad_rank="as undamaged",
        kind="escape",
        says="control characters repaired",
    ),
    "invalid UTF-8": DamagedRun(
        write=of_text(lambda text: t.with_name(text, b"caf\xe9")),
        bad_rank="as undamaged",
        kind="encoding",
        says="invalid UTF-8 repaired",
    ),
    # ---- NaN, Infinity, huge numbers, nesting
    "NaN": DamagedRun(
        write=with_one_event('"ph": "X", "name": "k", "ts": NaN, "dur": 1'),
        bad_rank="as undamaged",
        kind="non-finite",
        says="1 event with NaN",
    ),
    "Infinity": DamagedRun(
        write=with_one_event('"ph": "X", "name": "k", "ts": 1, "dur": Infinity'),
        bad_rank="as undamaged",
        kind="non-finite",
        says="1 event",
    ),
    "1e400": DamagedRun(
        write=with_one_event('"ph": "X", "name": "k", "ts": 1e400, "dur": 1'),
        bad_rank="as undamaged",
        kind="non-finite",
        says="1 event",
    ),
    "5000-digit integers": DamagedRun(
        write=with_one_event(f'"ph": "X", "name": "k", "ts": {"9" * 5000}, "dur": 1'),
        bad_rank="as undamaged",
        kind="non-finite",
        says="1 event",
    ),
    "nesting 200,000 deep": DamagedRun(
        write=with_one_event(
            f'"ph": "X", "name": "k", "ts": 1, "dur": 1, "args": {{"a": {"[" * 200_000}{"]" * 200_000}}}'
        ),
        bad_rank="as undamaged",
        kind="limit",
        says="1 event with deeper nesting",
    ),
    # ---- other ways to write the same
    "BOM": DamagedRun(write=of_text(lambda text: b"\xef\xbb\xbf" + text), bad_rank="as undamaged", is_defect=False),
    "CRLF": DamagedRun(write=of_trace(_all_steps, "crlf"), bad_rank="as undamaged", is_defect=False),
    "lone surrogates": DamagedRun(
        write=of_text(lambda text: t.with_name(text, rb"\ud83d")),
        bad_rank="as undamaged",
        kind="escape",
        says="6 events",
    ),
    "compact layout": DamagedRun(write=of_trace(_all_steps, "compact"), bad_rank="as undamaged", is_defect=False),
    "pretty layout": DamagedRun(write=of_trace(_all_steps, "pretty"), bad_rank="as undamaged", is_defect=False),
    "metadata behind the events": DamagedRun(
        write=of_trace(_all_steps, tail=True), bad_rank="as undamaged", is_defect=False
    ),
    "numbers as strings": DamagedRun(write=of_text(t.numbers_as_strings), bad_rank="as undamaged", is_defect=False),
    "categories of torch 1.8": DamagedRun(
        write=of_trace(e.categories_of_torch_1_8), bad_rank="as undamaged", is_defect=False
    ),
    # ---- packed
    "gzip cut off": DamagedRun(
        write=of_text(lambda text: gzip.compress(text, mtime=0)[:1500], suffix=".gz", ordered=True),
        bad_rank=(3, 4),
        kind="truncated",
        says="the gzip stream is cut off",
        file=_GZ,
    ),
    "gzip of several members": DamagedRun(
        write=of_text(t.members, suffix=".gz"), bad_rank="as undamaged", is_defect=False
    ),
    "gzip with a wrong checksum": DamagedRun(
        write=of_text(t.bad_checksum, suffix=".gz"),
        bad_rank="excluded",
        kind="truncated",
        says="no step counts: any part of the file may be wrong",
        file=_GZ,
    ),
    "gzip of several members, the last with a wrong checksum": DamagedRun(
        write=of_text(t.bad_checksum_of_last_member, suffix=".gz", ordered=True),
        bad_rank=(3, 4, 5),
        kind="truncated",
        says="what is read ends before that member",
        file=_GZ,
    ),
    "gzip with a changed byte": DamagedRun(
        write=of_text(t.flipped_byte, suffix=".gz", ordered=True),
        bad_rank="excluded",
        kind="truncated",
        says="no step counts: any part of the file may be wrong",
        file=_GZ,
    ),
    "gzip with garbage behind": DamagedRun(
        write=of_text(t.trailing_garbage, suffix=".gz"),
        bad_rank="as undamaged",
        kind="encoding",
        says="the end of the gzip stream",
        file=_GZ,
    ),
    "plain text named .gz": DamagedRun(
        write=of_text(lambda text: text, suffix=".gz"), bad_rank="as undamaged", is_defect=False
    ),
    "gzip named .json": DamagedRun(
        write=of_text(lambda text: gzip.compress(text, mtime=0)), bad_rank="as undamaged", is_defect=False
    ),
    # ---- no traces
    "empty file": DamagedRun(write=f.empty_file, bad_rank="missing", kind="empty", says="the file is empty; left out"),
    "JSON that is no trace": DamagedRun(
        write=f.json_that_is_no_trace, bad_rank="missing", kind="ignored-file", says="not a trace"
    ),
    "no events": DamagedRun(write=f.trace_without_events, bad_rank="missing", kind="empty", says="no events in it"),
    "folder named like a trace": DamagedRun(
        write=f.folder_named_like_a_trace, bad_rank="missing", says="8 of 9 ranks", kind="missing-rank", file=""
    ),
    "FIFO": DamagedRun(write=f.fifo, bad_rank="missing", kind="ignored-file", says="not a regular file"),
    "broken link": DamagedRun(write=f.broken_link, bad_rank="missing", kind="ignored-file", says="a link to nothing"),
    "link to itself": DamagedRun(
        write=f.link_to_itself, bad_rank="missing", kind="ignored-file", says="symbolic links"
    ),
    "unfinished export": DamagedRun(
        write=lambda path: f.unfinished_export(path, t.cut_off(e.in_order_of_time(rank_trace()).text(), 0.6)),
        bad_rank=(3, 4, 5),
        kind="unfinished-tmp",
        says="the job died while it wrote this file",
        file=f"rank{BAD}.json.tmp",
    ),
    "gzip bomb": DamagedRun(
        write=of_text(t.gzip_bomb, suffix=".gz"),
        bad_rank="excluded",
        says="no step counts: the file ends before its kernels",
        file=_GZ,
    ),
    # ---- events
    "null instead of an event": DamagedRun(
        write=of_text(lambda text: t.with_event(text, "null")),
        bad_rank="as undamaged",
        kind="malformed-event",
        says="1 event",
    ),
    "a number instead of an event": DamagedRun(
        write=of_text(lambda text: t.with_event(text, "7")),
        bad_rank="as undamaged",
        kind="malformed-event",
        says="1 event",
    ),
    "null names": DamagedRun(
        write=with_one_event('"ph": "i", "name": null, "ts": 1'), bad_rank="as undamaged", is_defect=False
    ),
    "missing dur": DamagedRun(
        write=with_one_event('"ph": "X", "name": "k", "ts": 4396970'),
        bad_rank="as undamaged",
        kind="malformed-event",
        says="1 event with missing or unusable fields",
    ),
    "B and E pairs": DamagedRun(write=of_trace(e.begin_and_end_events), bad_rank="as undamaged", is_defect=False),
    "other phases": DamagedRun(write=of_trace(e.with_other_phases), bad_rank="as undamaged", is_defect=False),
    "text as pid": DamagedRun(
        write=of_trace(lambda trace: e.with_pid(trace, "python")), bad_rank="as undamaged", is_defect=False
    ),
    "no pid": DamagedRun(write=of_trace(e.without_pid), bad_rank="as undamaged", is_defect=False),
}
