"""Replace the names in a decoded trace: of hosts, paths, modules, groups, annotations, functions, threads.

Everything that is made of a trace is made of what `anonymized` returns, so that no output has to think of it. The names
of kernels and operators stay, as do the labels that torch, NCCL and the probe write, but for the modules in them.
Arguments that no list here has stay if there is no letter in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Int32, TraceHeader, Track
from tracekit.model.names.pseudonyms import Namer, group_name, host_name
from tracekit.model.spans import LABEL_PREFIX
from tracekit.read.decode.anonymous.annotations import anonymous_annotation
from tracekit.read.decode.anonymous.metadata import anonymous_metadata
from tracekit.read.decode.anonymous.python_functions import anonymous_python_function
from tracekit.read.decode.extra_args import split_members

__all__ = ["anonymized"]

_ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
_PYTHON = "python_function"
_THREAD = re.compile(r"(thread -?\d+ )\((.*)\)")
_PUBLIC_THREAD = re.compile(r"|python[\d.]*|pt_\w+|stream .*|GPU \d+|CPU|Spans|Traces|PyTorch Profiler|-?\d+")
_PUBLIC_ARGUMENTS = frozenset({"Collective name", "dtype", "Input type", "kernel_backend", "kernel", "kernel_name"})
_GROUPS = frozenset({"Process Group Name", "Process Group Description"})
_LISTS = frozenset({"Concrete Inputs"})
_LETTER = re.compile(r"[^\W\d_]")
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
    annotated = events.in_category(*_ANNOTATIONS)
    labelled = events.named(lambda name: name.startswith(LABEL_PREFIX)) & ~annotated
    name = events.name.copy()
    for rows, renamed in (
        (annotated | labelled, anonymous_annotation),
        (events.in_category(_PYTHON), anonymous_python_function),
    ):
        name[rows] = strings.renamed(events.name[rows], partial(renamed, namer=namer))
    of_collectives, renamed_group = events.collective_arguments, partial(group_name, namer)
    return replace(
        events,
        name=name,
        tracks=[_track(track, namer) for track in events.tracks],
        extra_args=strings.renamed(events.extra_args, partial(_extra_args, namer=namer)),
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

    def renamed(self, column: Int32, rename: Callable[[str], str]) -> Int32:
        """Return a column, int32 [n], that refers to what `rename` returns for each of its distinct texts."""
        present, place = np.unique(column, return_inverse=True)
        new = [ABSENT if number == ABSENT else self._number(rename(self.texts[number])) for number in present.tolist()]
        return np.array(new, dtype=np.int32)[place] if len(new) else column

    def _number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


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


def _extra_args(text: str, namer: Namer) -> str:
    members = (_argument(member, namer) for member in split_members(text))
    kept = ",\n".join(member for member in members if member is not None)
    return f"{{{kept}}}" if kept else ""


def _argument(member: str, namer: Namer) -> str | None:
    """Return an argument and its key, as JSON; None if it is left out."""
    try:
        ((key, value),) = msgspec.json.decode(f"{{{member}}}", type=dict[str, msgspec.Raw]).items()
        if key in _GROUPS:
            value = msgspec.Raw(msgspec.json.encode(group_name(namer, msgspec.json.decode(value, type=str))))
        elif key in _LISTS:
            inputs = msgspec.json.decode(value, type=list[str])
            value = msgspec.Raw(msgspec.json.encode(["" if _says_something(text) else text for text in inputs]))
    except (ValueError, RecursionError):  # nothing that torch writes
        return None
    shown = bytes(value).decode()
    is_public = key in _PUBLIC_ARGUMENTS or key in _GROUPS or key in _LISTS or not _says_something(shown)
    return f"{msgspec.json.encode(key).decode()}: {shown}" if is_public else None


def _says_something(text: str) -> bool:
    return _LETTER.search(re.sub(r"\b(?:true|false|null|none|inf|nan|\d+e)\b", "", text.lower())) is not None
