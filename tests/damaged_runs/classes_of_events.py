"""Classes of damage in what a file says: its times, their order, ids, rank, steps, device records and clock.

They are rows of docs/damaged-traces.md, in their order.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from tests.builders import TraceBuilder
from tests.damaged_runs import events as e
from tests.damaged_runs import text as t
from tests.damaged_runs.damaged_run import DamagedRun, of_trace, with_one_event
from tests.damaged_runs.good_run import GOOD, STEP_US, STEPS, rank_trace

_DAY_US = 86_400e6
_NO_TIMES = "its times are n/a and join no comparison"


def _of_rank(rank: int, **how: float) -> Callable[[Path], object]:
    """Another file of a good rank, from another process."""

    def write(path: Path) -> None:
        trace = rank_trace(rank, steps=STEPS, pid=777, **how)
        e.in_order_of_time(trace).write(path.with_name("another.json"))

    return write


def _copy_of_rank_3(name: str, damage: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Another file of a good rank's window, by the same process, and newer."""

    def write(path: Path) -> None:
        copy = path.with_name(name)
        copy.write_bytes(damage(rank_trace(3).text()))
        os.utime(copy, (4e9, 4e9))

    return write


def _without_steps(trace: TraceBuilder) -> TraceBuilder:
    trace.events = [event for event in trace.events if not event["name"].startswith("ProfilerStep")]
    return trace


def _attempt_of_all(path: Path) -> None:
    for rank in GOOD:
        trace = rank_trace(rank, steps=range(5, 11), at_us=-60e6, pid=700 + rank)
        e.in_order_of_time(trace).write(path.with_name(f"attempt0_{rank}.json"))


CLASSES_OF_EVENTS: dict[str, DamagedRun] = {
    # ---- times
    "negative dur": DamagedRun(
        write=with_one_event('"ph": "X", "name": "k", "ts": 4396970, "dur": -5'),
        bad_rank="as undamaged",
        kind="negative-duration",
        says="1 event",
    ),
    "ts of zero": DamagedRun(
        write=of_trace(lambda trace: e.with_outlier(trace, at_us=-(10**13))),
        bad_rank="as undamaged",
        kind="out-of-range",
        says="1 event",
    ),
    "wrapped uint64": DamagedRun(
        write=with_one_event('"ph": "X", "name": "k", "ts": 18446744073709551615, "dur": 1'),
        bad_rank="as undamaged",
        kind="malformed-event",
        says="1 event",
    ),
    "durations times 1000": DamagedRun(
        write=of_trace(e.durations_times_1000),
        bad_rank="excluded",
        kind="clock-drift",
        says="its times are 1e+03 times those of the other ranks",
    ),
    "all durations 0": DamagedRun(
        write=of_trace(e.durations_of_zero),
        bad_rank="excluded",
        kind="nothing-ran",
        says=f"it has no kernel, operator or collective that took any time: {_NO_TIMES}",
    ),
    "a kernel that ends long after the recording": DamagedRun(
        write=of_trace(e.with_an_endless_kernel),
        bad_rank=(3, 4, 5, 6, 7),
        kind="out-of-range",
        says="its last event ends 9,999,999.400 ms after the recording does: step 8 does not count",
    ),
    # ---- order
    "in order of time": DamagedRun(write=of_trace(e.in_order_of_time), bad_rank="as undamaged", is_defect=False),
    "in reverse order": DamagedRun(write=of_trace(e.in_reverse_order), bad_rank="as undamaged", is_defect=False),
    "overlapping slices on a track": DamagedRun(
        write=of_trace(e.overlapping_slices), bad_rank="as undamaged", is_defect=False
    ),
    "events of another file": DamagedRun(
        write=of_trace(lambda trace: e.with_events_of(trace, rank_trace(2))),
        bad_rank="excluded",
        kind="mixed-processes",
        says=f"it is a merge: it mixes the operators of 2 processes (pid 4020, 4080): {_NO_TIMES}",
    ),
    "events of another file of the same process": DamagedRun(
        write=of_trace(lambda trace: e.with_events_of(trace, rank_trace(at_us=-60_000))),
        bad_rank="excluded",
        kind="step-order",
        says=f"steps 3-8 are in it more than once: {_NO_TIMES}",
    ),
    "all starts equal": DamagedRun(
        write=of_trace(e.equal_starts), bad_rank="excluded", kind="step-order", says="steps 3 and 4 overlap in time"
    ),
    # ---- duplicate correlation ids
    "duplicate correlation ids": DamagedRun(
        write=of_trace(e.duplicate_correlation_ids), bad_rank="as undamaged", is_defect=False
    ),
    # ---- rank
    "no distributedInfo": DamagedRun(
        write=of_trace(e.without_distributed_info), bad_rank="as undamaged", is_defect=False
    ),
    "the name contradicts the trace": DamagedRun(
        write=lambda path: rank_trace().write(path.with_name("rank3_of_9.json")),
        bad_rank="as undamaged",
        kind="rank-mismatch",
        says="the trace names rank 8, the file's name rank 3; it counts as rank 8",
        file="rank3_of_9.json",
    ),
    "a rank that its job does not have": DamagedRun(
        write=of_trace(e.of_impossible_rank),
        bad_rank="as undamaged",
        kind="rank-mismatch",
        says="it says to be rank 12 of 9, which cannot be: neither counts, its name says the rank",
    ),
    "the pid of another rank": DamagedRun(
        write=lambda path: rank_trace(pid=4000).write(path), bad_rank="as undamaged", is_defect=False
    ),
    "odd ranks of a group": DamagedRun(
        write=of_trace(lambda trace: e.with_ranks_of_group(trace, [2**70, None, "x"])),
        bad_rank="as undamaged",
        kind="not-available",
        says="the ranks of process group 'default_pg' cannot be read",
        is_defect=False,
    ),
    # ---- attempts, windows, steps
    "an older attempt of one rank, in order of time": DamagedRun(
        write=_of_rank(3, at_us=-60e6),
        bad_rank="missing",
        kind="other-run",
        says="(another.json) is there too",
        file="another.json",
    ),
    "a newer attempt of one rank, in order of time": DamagedRun(
        write=_of_rank(3, at_us=60e6),
        bad_rank="missing",
        kind="other-run",
        says="(another.json) is there too",
        file="another.json",
    ),
    "another process of one rank, at the same time": DamagedRun(
        write=lambda path: rank_trace(3, pid=777).write(path.with_name("another.json")),
        bad_rank="missing",
        kind="other-run",
        says="(another.json) is there too",
        file="another.json",
    ),
    "an older attempt of all ranks, in order of time": DamagedRun(
        write=_attempt_of_all,
        bad_rank="missing",
        kind="other-run",
        says="(8 ranks) is there too",
        file="",
    ),
    "a newer copy of one rank, cut off": DamagedRun(
        write=_copy_of_rank_3("rank3_b.json", lambda text: t.cut_off(text, 0.6)),
        bad_rank="missing",
        kind="duplicate-rank",
        says="another file of the same recording",
        file="rank3_b.json",
    ),
    "a newer copy of one rank, its gzip cut off": DamagedRun(
        write=_copy_of_rank_3("rank3.json.gz", lambda text: gzip.compress(text, mtime=0)[:1500]),
        bad_rank="missing",
        kind="duplicate-rank",
        says="another file of the same recording",
        file="rank3.json.gz",
    ),
    "a newer copy of one rank, its gzip with a wrong checksum": DamagedRun(
        write=_copy_of_rank_3("rank3.json.gz", t.bad_checksum),
        bad_rank="missing",
        kind="duplicate-rank",
        says="another file of the same recording",
        file="rank3.json.gz",
    ),
    "a newer copy of one rank without its last steps": DamagedRun(
        write=_copy_of_rank_3("rank3_b.json", lambda text: rank_trace(3, steps=range(3, 6)).text()),
        bad_rank="missing",
        kind="duplicate-rank",
        says="another file of the same recording, with fewer complete steps; rank3.json is used",
        file="rank3_b.json",
    ),
    "a newer copy of one rank without its steps": DamagedRun(
        write=_copy_of_rank_3("rank3_b.json", lambda text: _without_steps(rank_trace(3)).text()),
        bad_rank="missing",
        kind="duplicate-rank",
        says="rank3.json is used",
        file="rank3_b.json",
    ),
    "missing rank": DamagedRun(
        write=lambda path: None, bad_rank="missing", kind="missing-rank", says="8 of 9 ranks; missing: 8", file=""
    ),
    "fewer steps": DamagedRun(
        write=lambda path: rank_trace(steps=range(3, 6)).write(path),
        bad_rank=(3, 4, 5),
        kind="step-mismatch",
        says="it completed 3 of the 6 steps",
    ),
    "a repeated step number": DamagedRun(
        write=of_trace(lambda trace: e.renumbered_steps(trace, lambda n: n - (n > 5))),
        bad_rank="excluded",
        kind="step-order",
        says="step 5 is in it more than once",
    ),
    "the span of a step is lost": DamagedRun(
        write=of_trace(lambda trace: e.without(trace, lambda event: event["name"] == "ProfilerStep#5")),
        bad_rank=(3, 6, 7, 8),
        kind="unterminated",
        says="step 4 is incomplete and does not count",
    ),
    # ---- lost GPU records
    "no device records": DamagedRun(
        write=of_trace(e.without_device_records),
        bad_rank="excluded",
        kind="no-device-records",
        says="it was recorded without CUDA activity",
    ),
    "no device records, nor anything that tells of a device": DamagedRun(
        write=of_trace(lambda trace: e.without_signs_of_device(e.without_device_records(trace))),
        bad_rank="excluded",
        kind="no-device-records",
        says=f"it has no kernels, though other ranks have some, and communicates with none of them: {_NO_TIMES}",
    ),
    "no kernels from a step on": DamagedRun(
        write=of_trace(lambda trace: e.without_kernels_from(trace, step=6)),
        bad_rank=(3, 4, 5),
        kind="lost-device-records",
        says="steps 6-8 lack device records",
    ),
    "neither kernels nor launches from a step on": DamagedRun(
        write=of_trace(lambda trace: e.without_kernels_and_launches(trace, range(6, 9))),
        bad_rank=(3, 4),
        kind="lost-device-records",
        says="steps 5-8 lack device records and do not count",
    ),
    # ---- clocks
    "another base time": DamagedRun(write=of_trace(e.with_another_base_time), bad_rank="as undamaged", is_defect=False),
    "a clock that is seconds ahead": DamagedRun(
        write=of_trace(lambda trace: e.clock_ahead(trace, by_us=7e6)),
        bad_rank="as undamaged",
        kind="clock-step",
        says="its clock is +7,000.000 ms off",
        file="",
    ),
    "a clock that is a day ahead": DamagedRun(
        write=of_trace(lambda trace: e.clock_ahead(trace, by_us=_DAY_US)),
        bad_rank="missing",
        kind="other-run",
        says="(rank8.json) is there too",
    ),
    "times that are a year ahead": DamagedRun(
        write=of_trace(lambda trace: e.times_ahead(trace, by_us=365 * _DAY_US)),
        bad_rank="missing",
        kind="other-run",
        says="(rank8.json) is there too",
    ),
    "a clock that is a day behind": DamagedRun(
        write=of_trace(lambda trace: e.clock_ahead(trace, by_us=-_DAY_US)),
        bad_rank="missing",
        kind="other-run",
        says="(rank8.json) is there too",
    ),
    "a clock that runs 5 % fast": DamagedRun(
        write=of_trace(lambda trace: e.clock_at_rate(trace, Decimal("1.05"))),
        bad_rank="excluded",
        kind="clock-drift",
        says="its times are 1.05 times those of the other ranks",
    ),
    "a clock that runs at half the rate": DamagedRun(
        write=of_trace(lambda trace: e.clock_at_rate(trace, Decimal("0.5"))),
        bad_rank="excluded",
        kind="clock-drift",
        says="its times are 0.5 times those of the other ranks",
    ),
    "a clock that jumps": DamagedRun(
        write=of_trace(lambda trace: e.step_of_the_wall_clock(trace, at_us=3.2 * STEP_US, by_us=500_000)),
        bad_rank="excluded",
        kind="clock-step",
        says=f"its clock jumps by +500.000 ms within the recording: {_NO_TIMES}",
    ),
    "a clock that jumps in the first step": DamagedRun(
        write=of_trace(lambda trace: e.step_of_the_wall_clock(trace, at_us=0.3 * STEP_US, by_us=500_000)),
        bad_rank="excluded",
        kind="clock-step",
        says=f"its clock jumps by -499.830 ms within the recording: {_NO_TIMES}",
    ),
    "a clock that jumps in the last step": DamagedRun(
        write=of_trace(lambda trace: e.step_of_the_wall_clock(trace, at_us=5.5 * STEP_US, by_us=500_000)),
        bad_rank="excluded",
        kind="clock-step",
        says=f"its clock jumps by +499.550 ms within the recording: {_NO_TIMES}",
    ),
    "a clock that is set back": DamagedRun(
        write=of_trace(lambda trace: e.step_of_the_wall_clock(trace, at_us=3.2 * STEP_US, by_us=-2000)),
        bad_rank="excluded",
        kind="step-order",
        says="its steps are not in the order of their numbers (its clock was set back?)",
    ),
    "the clock of the host alone jumps": DamagedRun(
        write=of_trace(lambda trace: e.step_of_the_host_clock(trace, at_us=3.2 * STEP_US, by_us=500_000)),
        bad_rank="excluded",
        kind="device-clock",
        says="ms before they are launched, which is too much to correct",
    ),
    "kernels shortly before their launch": DamagedRun(
        write=of_trace(lambda trace: e.kernels_before_their_launch(trace, by_us=300)),
        bad_rank="as undamaged",
        kind="device-clock",
        says="kernels begin up to 0.291 ms before they are launched: the device's clock is behind",
    ),
    "kernels long before their launch": DamagedRun(
        write=of_trace(lambda trace: e.kernels_before_their_launch(trace, by_us=5000)),
        bad_rank="excluded",
        kind="device-clock",
        says=f"kernels begin 4.991 ms before they are launched, which is too much to correct: {_NO_TIMES}",
    ),
}
