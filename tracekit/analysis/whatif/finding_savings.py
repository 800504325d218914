"""The saving that a finding states: that of a replay of this run with what the finding advises.

A finding names its remedy as `Change` does, and whom it concerns in `ranks`, or in its rank. Some sections replay what
they advise themselves: their findings have an error of the saving from the start. Any other saving is an estimate. It
is dropped, and `no_replay` in the evidence says why there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, cast

from tracekit.analysis.events.pauses.pause_times import PAUSES
from tracekit.analysis.section import Result, Unavailable
from tracekit.analysis.whatif.changes import Change
from tracekit.analysis.whatif.whatif import WhatIf
from tracekit.findings.communication import REPLAYED_ACTIONS
from tracekit.findings.finding import Finding, Remedy

__all__ = ["state_savings", "with_stated_savings"]

_ALTERNATIVES: Mapping[Remedy, Remedy] = {"load": "ranks", "stages": "ranks", "communication": "network"}
_NOT_ASKED = "the section whatif was not asked for"
_NOT_REPLAYED = "no replay has this change"
_NOTHING_SAVED = "no replay of this change saves more than its error"


def with_stated_savings(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of sections, by name, with findings that state what they save."""
    whatif = results.get("whatif")
    stated: dict[str, Any] = {}
    for name, result in results.items():
        findings = () if isinstance(result, Unavailable) else cast(Result, result).findings
        of_section = state_savings(findings, whatif)
        stated[name] = result if of_section == findings else _with_findings(result, of_section)
    return stated


def _with_findings(result: Any, findings: tuple[Finding, ...]) -> Any:
    """Return a copy of a result with other findings. `dataclasses.replace` would make a DataFrame of each table."""
    changed = copy(result)
    vars(changed)["findings"] = findings
    return changed


def state_savings(findings: Iterable[Finding], whatif: WhatIf | Unavailable | None) -> tuple[Finding, ...]:
    """Return the findings with the savings of those changes that are what they advise, and their errors.

    `change` in the evidence names the change. A finding whose saving has an error already keeps it. Without either
    there is no saving; if the finding advises something, `no_replay` in the evidence says why. whatif: None if it was
    not asked for.
    """
    return tuple(_state(finding, whatif) for finding in findings)


def _state(finding: Finding, whatif: WhatIf | Unavailable | None) -> Finding:
    change = _change_for(finding, whatif.changes if isinstance(whatif, WhatIf) else ())
    if change is not None:
        return replace(
            finding,
            saving_ns=change.saves_ns_per_step,
            saving_error_ns=change.error_ns,
            action=REPLAYED_ACTIONS.get(change.remedy, finding.action),
            evidence={**finding.evidence, "change": change.what},
        )
    if finding.saving_error_ns is not None:
        return finding
    if finding.remedy is None and finding.saving_ns is None:
        return finding
    evidence = {"no_replay": _why_not(finding, whatif), **finding.evidence}
    return replace(finding, saving_ns=None, evidence=evidence)


def _change_for(finding: Finding, changes: Iterable[Change]) -> Change | None:
    """Return the change that a finding advises; None if no such change is worthwhile.

    A pause of all ranks may save as much if only the rank that the others wait for has none.
    """
    if finding.remedy is None:
        return None
    loads = finding.remedy == "ranks" and finding.cause == "data"  # a stage of a pipeline has no peers to be at
    remedies = (finding.remedy, "data" if loads else _ALTERNATIVES.get(finding.remedy))
    replayed = [change for remedy in remedies for change in changes if change.remedy == remedy]
    concerned, of_all = set(finding.concerned), finding.remedy in PAUSES and not finding.concerned
    return next((change for change in replayed if of_all or not change.ranks or set(change.ranks) == concerned), None)


def _why_not(finding: Finding, whatif: WhatIf | Unavailable | None) -> str:
    if finding.remedy is None:
        return _NOT_REPLAYED
    if whatif is None:
        return _NOT_ASKED
    if isinstance(whatif, Unavailable):
        return whatif.reason
    return whatif.not_tried.get(finding.remedy, _NOTHING_SAVED)
