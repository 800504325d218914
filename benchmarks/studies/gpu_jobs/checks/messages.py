"""Checks of point-to-point messages: which send met which receive."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from benchmarks.gpu_jobs import Message
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, compare_each, right_if

_ROUNDING_NS = 5_000
_ELEMENT_BYTES = 4


def messages_are_counted(evidence: Evidence) -> Outcome | None:
    """How many messages each pair of ranks joins in each step."""
    expected = Counter((m.source, m.destination, m.step) for m in evidence.truth.messages)
    if not expected:
        return None
    matched = evidence.run.messages
    seen = Counter(zip(matched.source.tolist(), matched.destination.tolist(), matched.step.tolist(), strict=True))
    off = {key for key in seen.keys() | expected.keys() if seen[key] != expected[key]}
    example = min(off, default=None)
    return right_if(
        not off,
        f"{seen.total()} messages" + (f"; {seen[example]} of {example}" if example else ""),
        f"{expected.total()} messages" + (f"; {expected[example]} of {example}" if example else ""),
    )


def messages_are_matched(evidence: Evidence) -> Outcome | None:
    """Each send is joined to its own receive: the k-th pair of two ranks is their k-th message, and ends with it."""
    if not evidence.truth.messages:
        return None
    expected: dict[tuple[int, int], list[Message]] = defaultdict(list)
    for message in sorted(evidence.truth.messages, key=lambda m: m.end_ns):
        expected[message.source, message.destination].append(message)
    matched, of_rank = evidence.run.messages, {s.rank: s.messages for s in evidence.run.ranks}
    right, example = 0, ""
    for (source, destination), messages in expected.items():
        here = np.flatnonzero((matched.source == source) & (matched.destination == destination))
        here = here[np.argsort(matched.send[here], kind="stable")]
        for place, message in zip(here.tolist(), messages, strict=False):
            send, recv = int(matched.send[place]), int(matched.recv[place])
            ends_ns = (
                int(of_rank[source].end_ns[send]) - evidence.shown_ns(source, message.end_ns),
                int(of_rank[destination].end_ns[recv]) - evidence.shown_ns(destination, message.end_ns),
            )
            # A kernel of several messages ends with the last of them.
            if evidence.spec.batched_messages:
                right += all(end_ns >= -_ROUNDING_NS for end_ns in ends_ns)
            else:
                right += all(abs(end_ns) <= _ROUNDING_NS for end_ns in ends_ns)
            if not example and min(ends_ns) < -_ROUNDING_NS:
                example = f"; of {source} to {destination} in step {message.step} the ends are {ends_ns} ns off"
    total = len(evidence.truth.messages)
    return right_if(right == total, f"{right} pairs{example}", f"{total} pairs")


def sizes_of_messages(evidence: Evidence) -> Outcome | None:
    """How many bytes each pair of ranks sends, but for what does not fill an element."""
    if not evidence.truth.messages:
        return None
    expected: Counter[tuple[int, int]] = Counter()
    for message in evidence.truth.messages:
        expected[message.source, message.destination] += message.size_bytes
    matched, of_rank = evidence.run.messages, {s.rank: s.messages for s in evidence.run.ranks}
    seen: Counter[tuple[int, int]] = Counter()
    for source, destination, send in zip(
        matched.source.tolist(), matched.destination.tolist(), matched.send.tolist(), strict=True
    ):
        seen[source, destination] += int(of_rank[source].size_bytes[send])
    return compare_each(seen, expected, within=_ELEMENT_BYTES * len(evidence.truth.messages))


CHECKS: tuple[Check, ...] = (messages_are_counted, messages_are_matched, sizes_of_messages)
