"""tracekit: where the time of a distributed training step goes, and what to do about it.

    @tracekit.probe                     record a training step, on every rank
    run = tracekit.load("runs/")        read the newest run of a folder
    report = tracekit.analyze("runs/")  tables (pandas) and findings
    tracekit.merge(run, "run.pftrace")  one trace for Perfetto
    tracekit.compare("a/", "b/")        whether run b is slower than run a, or than several runs [a, ...], and why
    report.tables["ranks"]              a DataFrame; tracekit.schema describes every column
    tracekit.read_tables("run.csv")     tables that a report was written to, as DataFrames again
    tracekit.to_hta("runs/")            the TraceAnalysis of Holistic Trace Analysis, loaded by tracekit
    tracekit.integrations               the decorator as callbacks of Accelerate, Lightning, the HF Trainer

Names are imported when they are first used: a training job pays for the capture only, an analysis never for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracekit.errors import missing_package
from tracekit.version import __version__ as __version__

if TYPE_CHECKING:
    from tracekit import integrations, schema
    from tracekit.api import Comparison, Report, Run, analyze, compare, load
    from tracekit.capture.probe import probe
    from tracekit.errors import TracekitError
    from tracekit.hta.package import to_hta
    from tracekit.render.files.read_back import read_tables
    from tracekit.render.merged.merge import merge

__all__ = [
    "Comparison",
    "Report",
    "Run",
    "TracekitError",
    "analyze",
    "compare",
    "integrations",
    "load",
    "merge",
    "probe",
    "read_tables",
    "schema",
    "to_hta",
]

_HOME = {
    "Comparison": "tracekit.api",
    "Report": "tracekit.api",
    "Run": "tracekit.api",
    "TracekitError": "tracekit.errors",
    "analyze": "tracekit.api",
    "compare": "tracekit.api",
    "integrations": "tracekit.integrations",
    "load": "tracekit.api",
    "merge": "tracekit.render.merged.merge",
    "probe": "tracekit.capture.probe",
    "read_tables": "tracekit.render.files.read_back",
    "schema": "tracekit.schema",
    "to_hta": "tracekit.hta.package",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tracekit' has no attribute {name!r}")
    try:
        home = importlib.import_module(_HOME[name])
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    value = home if home.__name__ == f"tracekit.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
