"""Replace the names in a decoded trace: of hosts, paths, modules, groups, annotations, functions, threads.

Everything that is made of a trace is made of what `anonymized` returns, so that no output has to think of it. The names
of kernels and operators stay. Of all else only what has a public form stays, such as the labels that torch writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Int32, TraceHeader, Track
from tracekit.model.names.pseudonyms import Namer, group_name, host_name
from tracekit.model.spans import LABEL_PREFIX
from tracekit.read.decode.anonymous.annotations import anonymous_annotation
from tracekit.read.decode.anonymous.arguments import anonymous_arguments
from tracekit.read.decode.anonymous.categories import PUBLIC_CATEGORIES, PYTHON_FUNCTION, WITH_PUBLIC_NAMES
from tracekit.read.decode.anonymous.metadata import anonymous_metadata
from tracekit.read.decode.anonymous.python_functions import anonymous_python_function

__all__ = ["anonymized"]

_THREAD = re.compile(r"(thread -?\d+ )\((.*)\)")
# Of Kineto, and of torch, whose names Linux cuts after 15 characters.
_PUBLIC_THREAD = re.compile(
    r"|python[\d.]*|stream (?:-?\d+|all) *|GPU \d+|CPU|Spans|Traces|PyTorch Profiler|-?\d+"
    r"|pt_(?:main_thread|autograd_\d+|data_worker|data_pin|dist_engine|elastic|gloo_runloop|nccl_heartbt|nccl_watchdg"
    r"|nccl_runloop|tcpstore|tcpstore_uv|threadpool|workerserver)"
)
_PUBLIC_KEYS = frozenset(
    {
        *("schemaVersion", "deviceProperties", "trace_id", "baseTimeNanoseconds", "displayTimeUnit"),
        *("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"),
        *("cuda_runtime_version", "cuda_driver_version", "cupti_version"),
    }
)


def anonymized(trace: DecodedTrace, namer: Namer) -> DecodedTrace:
    """Return the trace with other names; its times, rows and numbers are the same.

    `file` and the notes have the file's own name: it is read again, and a run's notes are replaced all at once.
    """
    return replace(
        trace,
        header=_header(trace.header, namer),
        events=_events(trace.events, namer),
        keys={key: text for key, text in trace.keys.items() if key in _PUBLIC_KEYS},
    )


def _header(header: TraceHeader, namer: Namer) -> TraceHeader:
    groups = (
        replace(group, name=group_name(namer, group.name), description=group_name(namer, group.description))
        for group in header.process_groups
    )
    return replace(
        header,
        host=None if header.host is None else host_name(namer, header.host),
        process_groups=tuple(groups),
        metadata=None if header.metadata is None else anonymous_metadata(header.metadata, namer),
        profiler_messages=tuple(map(namer.text, header.profiler_messages)),
    )


def _events(events: EventTable, namer: Namer) -> EventTable:
    strings = _Strings(events.strings)
    python, public = events.in_category(PYTHON_FUNCTION), events.in_category(*WITH_PUBLIC_NAMES)
    labelled = events.named(lambda name: name.startswith(LABEL_PREFIX))
    name = events.name.copy()
    for rows, renamed in ((labelled | ~(public | python), anonymous_annotation), (python, anonymous_python_function)):
        name[rows] = strings.renamed(events.name[rows], partial(renamed, namer=namer))
    of_collectives, renamed_group = events.collective_arguments, partial(group_name, namer)
    return replace(
        events,
        name=name,
        category=strings.renamed(events.category, partial(_category, namer=namer)),
        tracks=[_track(track, namer) for track in events.tracks],
        extra_args=strings.renamed(events.extra_args, partial(anonymous_arguments, namer=namer)),
        collective_arguments=replace(
            of_collectives,
            group_name=strings.renamed(of_collectives.group_name, renamed_group),
            group_description=strings.renamed(of_collectives.group_description, renamed_group),
        ),
        strings=strings.texts,
    )


class _Strings:
    """The texts that columns refer to, to which new ones are added."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = list(texts)
        self._numbers = {text: number for number, text in enumerate(texts)}

    def renamed(self, column: Int32, rename: Callable[[str], str | None]) -> Int32:
        """Return a column, int32 [n], that refers to what `rename` returns for each of its distinct texts.

        None becomes `ABSENT`.
        """
        present, place = np.unique(column, return_inverse=True)
        new = [ABSENT if number == ABSENT else self._number(rename(self.texts[number])) for number in present.tolist()]
        return np.array(new, dtype=np.int32)[place] if len(new) else column

    def _number(self, text: str | None) -> int:
        if text is None:
            return ABSENT
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def _category(category: str, namer: Namer) -> str:
    return category if category in PUBLIC_CATEGORIES else namer.name("category", category)


def _track(track: Track, namer: Namer) -> Track:
    return Track(
        pid=_thread(track.pid, namer) if isinstance(track.pid, str) else track.pid,
        tid=_thread(track.tid, namer) if isinstance(track.tid, str) else track.tid,
        process_name=_thread(track.process_name, namer),
        thread_name=_thread(track.thread_name, namer),
    )


def _thread(name: str, namer: Namer) -> str:
    if (thread := _THREAD.fullmatch(name)) is not None:
        return f"{thread[1]}({_thread(thread[2], namer)})"
    return name if _PUBLIC_THREAD.fullmatch(name) else namer.name("thread", name)
