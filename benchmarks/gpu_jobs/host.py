"""What a process does on its host: threads, operators, annotations and calls of the CUDA runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

MAIN, AUTOGRAD = 0, 1


@dataclass(slots=True)
class HostRecord:
    """An operator, a call of the runtime or an annotation on a thread of the host."""

    name: str
    category: str
    thread: int
    start_ns: int
    end_ns: int
    facts: dict[str, Any]


@dataclass(kw_only=True)
class Host:
    """The threads of a process, of which one runs at a time.

    Attributes:
        launch_us: time of a launch; other calls take a share of it.
        now_ns: true time.
        thread: which thread runs.
        sequences: first sequence number of each layer whose backward is to come.
    """

    launch_us: float
    now_ns: int = 0
    thread: int = MAIN
    records: list[HostRecord] = field(default_factory=list)
    sequences: dict[Any, int] = field(default_factory=dict)
    _ids: int = 0
    _correlations: int = 0
    _last_sequence: int = 0
    _operators: list[HostRecord] = field(default_factory=list)
    _annotations: dict[int, list[HostRecord]] = field(default_factory=lambda: {MAIN: [], AUTOGRAD: []})

    @property
    def annotation(self) -> HostRecord | None:
        """Return the innermost annotation of the thread that runs."""
        inside = self._annotations[self.thread]
        return inside[-1] if inside else None

    def spend(self, for_us: float) -> None:
        """Let the host be busy in Python."""
        self.now_ns += round(for_us * 1000)

    @contextmanager
    def operator(self, name: str, **facts: Any) -> Iterator[HostRecord]:
        """Record a `cpu_op` around what is done in it."""
        with self._span(name, "cpu_op", facts) as record:
            self._operators.append(record)
            yield record
            self._operators.pop()

    @contextmanager
    def operators(self, names: Sequence[str], **facts: Any) -> Iterator[None]:
        """Record operators that call each other, the outermost first."""
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self.operator(name, **facts))
            yield

    @contextmanager
    def label(self, name: str) -> Iterator[HostRecord]:
        """Record a `user_annotation`, as `torch.profiler.record_function` does."""
        with self._span(name, "user_annotation", {}) as record:
            self._annotations[record.thread].append(record)
            yield record
            self._annotations[record.thread].remove(record)

    @contextmanager
    def autograd(self) -> Iterator[None]:
        """Let the autograd engine's thread do what is done in it; the main thread waits."""
        operators, self._operators, self.thread = self._operators, [], AUTOGRAD
        yield
        self._operators, self.thread = operators, MAIN

    def next_sequence(self, key: Any) -> int:
        """Return the first of the two sequence numbers of a layer's operators."""
        self._last_sequence += 2
        self.sequences[key] = self._last_sequence
        return self._last_sequence

    def runtime_call(self, name: str, cbid: int, start_ns: int | None = None, end_ns: int | None = None) -> HostRecord:
        """Record a call of the CUDA runtime, and by default let the host spend its time on it."""
        self._correlations += 1
        facts: dict[str, Any] = {"cbid": cbid, "correlation": self._correlations}
        if self._operators:
            facts = {"External id": self._operators[-1].facts["External id"], **facts}
        if start_ns is None or end_ns is None:
            cost_ns = round(self.launch_us * (1000 if "Launch" in name or "Memcpy" in name else 200))
            start_ns, end_ns = self.now_ns, self.now_ns + cost_ns
            self.now_ns = end_ns
        record = HostRecord(name, "cuda_runtime", self.thread, start_ns, end_ns, facts)
        self.records.append(record)
        return record

    @contextmanager
    def _span(self, name: str, category: str, facts: dict[str, Any]) -> Iterator[HostRecord]:
        self._ids += 1
        ids = {"External id": self._ids, "Record function id": self._ids}
        record = HostRecord(name, category, self.thread, self.now_ns, -1, ids | facts | {"Ev Idx": self._ids - 1})
        self.records.append(record)
        self.now_ns += round(self.launch_us * 150)
        yield record
        self.now_ns += round(self.launch_us * 100)
        record.end_ns = self.now_ns
