"""The formats of a merged trace: the list to which a new one is added."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.render.slices import TraceFormat


@dataclass(frozen=True, kw_only=True)
class MergedFormat:
    """A format of merged traces. Its writer is imported when a trace is written.

    Attributes:
        home: the class that writes it, which has `TraceFormat.begin`: its module, a colon, its name.
        suffixes: how names of its files may end.
        default_name: of a file for which no name is given.
        viewer: where to open it, after "open it in"; empty for `tracekit open`.
    """

    home: str
    suffixes: tuple[str, ...]
    default_name: str
    viewer: str = ""

    def begin(self, first_ns: int, describe: Callable[[int], Mapping[str, str]]) -> TraceFormat:
        """Return what `TraceFormat.begin` of its class returns."""
        module, _, name = self.home.partition(":")
        form: type[TraceFormat] = getattr(importlib.import_module(module), name)
        return form.begin(first_ns, describe)


FORMATS = {
    "perfetto": MergedFormat(
        home="tracekit.render.perfetto:PerfettoFormat",
        suffixes=(".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz"),
        default_name="run.pftrace",
    ),
    "chrome": MergedFormat(
        home="tracekit.chrome:ChromeFormat",
        suffixes=(".json", ".json.gz"),
        default_name="run.json.gz",
        viewer="chrome://tracing",
    ),
}
"""The formats by what is typed after `--format`; the first is the default."""
