"""tracekit: where the time of a distributed training step goes, and what to do about it.

    @tracekit.probe                     record a training step, on every rank
    run = tracekit.load("runs/")        read the newest run of a folder
    report = tracekit.analyze("runs/")  tables (pandas) and findings
    tracekit.merge(run, "run.pftrace")  one trace for Perfetto
    tracekit.compare("a/", "b/")        whether run b is slower than run a, or than several runs [a, ...], and why
    report.tables["ranks"]              a DataFrame; tracekit.schema describes every column
    tracekit.read_tables("run.xlsx")    tables that a report was written to, as DataFrames again
    tracekit.to_hta("runs/")            the TraceAnalysis of Holistic Trace Analysis, loaded by tracekit
    tracekit.integrations               the decorator as callbacks of Accelerate, Lightning, the HF Trainer

Names are imported when they are first used: a training job pays for the capture only, an analysis never for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit import integrations, schema
    from tracekit.analysis.comparison.comparison import Comparison, compare
    from tracekit.analysis.load import load
    from tracekit.analysis.report import Report, analyze
    from tracekit.capture.probe import probe
    from tracekit.errors import TracekitError
    from tracekit.hta.package import to_hta
    from tracekit.model.run import Run
    from tracekit.render.files.read_back import read_tables
    from tracekit.render.merged.merge import merge

__version__ = "0.1.0"

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
    "Comparison": "tracekit.analysis.comparison.comparison",
    "Report": "tracekit.analysis.report",
    "Run": "tracekit.model.run",
    "TracekitError": "tracekit.errors",
    "analyze": "tracekit.analysis.report",
    "compare": "tracekit.analysis.comparison.comparison",
    "integrations": "tracekit.integrations",
    "load": "tracekit.analysis.load",
    "merge": "tracekit.render.merged.merge",
    "probe": "tracekit.capture.probe",
    "read_tables": "tracekit.render.files.read_back",
    "schema": "tracekit.schema",
    "to_hta": "tracekit.hta.package",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tracekit' has no attribute {name!r}")
    home = importlib.import_module(_HOME[name])
    value = home if home.__name__ == f"tracekit.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
