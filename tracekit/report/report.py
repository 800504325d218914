"""From a run to a report: the results of the sections that were asked for, and the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tracekit.errors import UsageError
from tracekit.explain.diagnosis.diagnosis import Diagnosis
from tracekit.explain.section import AnalysisInput, KnownWork, Result, Section, Unavailable
from tracekit.explain.sections import SECTIONS
from tracekit.explain.step_time.breakdown import overhead_findings
from tracekit.explain.step_time.idle import idle_findings
from tracekit.explain.step_time.step_lengths import mean_step_ns, noisy_steps, step_lengths
from tracekit.explain.stragglers.arrivals import Arrivals
from tracekit.explain.stragglers.host_causes import paused_by_step_ns
from tracekit.explain.stragglers.stragglers import arrivals
from tracekit.explain.whatif.whatif import (
    state_saving,
    with_fields,
    with_next_limit,
    with_replay_error,
    with_stated_savings,
)
from tracekit.findings.finding import Finding, held
from tracekit.findings.hosts import IDLE_ENTRIES, idle_unexplained
from tracekit.findings.ranking import rank_findings, with_noise
from tracekit.loading.load import Paths, load
from tracekit.loading.options import SummaryOptions
from tracekit.model.run import Run, short_repr
from tracekit.model.table import FilledTable, rows_of
from tracekit.model.texts import count_text
from tracekit.rank.communication_rules import CommunicationRule
from tracekit.rank.idle_causes import IDLE_CAUSES
from tracekit.read.cache.store import CacheChoice
from tracekit.report.all_clear import unsaid_cause, without_findings
from tracekit.report.tables import report_tables
from tracekit.stats.grouped import summed

if TYPE_CHECKING:
    import pandas as pd


R = TypeVar("R", bound=Result)

_PROOF = {"breakdown", "stragglers", "diagnosis"}  # sections without which nothing is known to be clear
_IDLE_IDS = frozenset(entry.id for entry in (*IDLE_ENTRIES.values(), idle_unexplained))


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """The results of an analysis.

    `report.breakdown` is the result of the section "breakdown"; every name in `SECTIONS` works so. It is None if the
    section was not asked for or has no result. `unavailable` then has the reason.

    Attributes:
        results: by name of section, for the sections that were asked for, in the order of `SECTIONS`.
        findings: first, that steps are too noisy to judge, or before that ranks which are slower all the same; then
            errors; then whoever the others wait for though no replay tells why; then by saving; then by the time that
            they are about.
        close: what was close to being a finding, the closest first; `Finding.conditions` says what it lacks.
        arrivals: who came last to each collective and message; None unless the section "stragglers" was asked for.
    """

    run: Run
    results: Mapping[str, Any]
    findings: tuple[Finding, ...]
    close: tuple[Finding, ...] = ()
    arrivals: Arrivals | None = None

    @cached_property
    def filled_tables(self) -> dict[str, FilledTable]:
        """The tables by name, without pandas: those of every run, then those of the sections that have a result."""
        return report_tables(self.run, self.results, self.findings)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Return every table as a DataFrame, by name. `tracekit.schema` and `attrs` describe the columns."""
        return {name: table.frame for name, table in self.filled_tables.items()}

    @property
    def unavailable(self) -> dict[str, str]:
        """Return the reason for each section without a result, by name of section."""
        return {name: result.reason for name, result in self.results.items() if isinstance(result, Unavailable)}

    def result(self, section: Section[R]) -> R | None:
        """Return the result of a section; None if it was not asked for or has no result."""
        result = self.results.get(section.name)
        return None if isinstance(result, Unavailable) else result

    def __repr__(self) -> str:
        lengths = step_lengths(self.run)
        steps = "no complete step"
        if lengths is not None:
            steps = f"{count_text(lengths.count, 'step')} of {lengths.median_ns / 1e6:,.1f} ms"
        ranks = count_text(len(self.run.ranks), "rank")
        first = f"; first finding: {short_repr(self.findings[0].text)}" if self.findings else ""
        return f"<tracekit.Report of {short_repr(self.run.path)}: {ranks}, {steps}{first}>"

    def __getattr__(self, name: str) -> Any:
        if name not in SECTIONS:
            raise AttributeError(f"a report has no {name!r}; its sections are {', '.join(SECTIONS)}")
        return self.result(SECTIONS[name])


def wanted_sections(only: str | Iterable[str] | None) -> frozenset[str] | None:
    """Return the names of the sections in `only`, None for all.

    Raises UsageError for a name that is no section.
    """
    if only is None:
        return None
    wanted = frozenset([only] if isinstance(only, str) else only)
    if unknown := wanted - SECTIONS.keys():
        raise UsageError(f"no section {', '.join(sorted(unknown))}", hint=f"there are {', '.join(SECTIONS)}")
    return wanted


def analyze(
    run: Run | Paths,
    *,
    only: str | Iterable[str] | None = None,
    work: KnownWork | None = None,
    cache: CacheChoice = False,
    communication_rules: Iterable[CommunicationRule | str] = (),
    ranks_from: str | None = None,
    step_anchor: str | None = None,
) -> Report:
    """Analyse a run, or the newest run below the given paths.

    `only` names the sections to compute, by default all of `SECTIONS`. `work` says what is known of the model's
    operations and the device's peak. `cache`, `communication_rules`, `ranks_from` and `step_anchor` are passed to
    `load`; with a run that is already loaded they have no effect.

    Raises UsageError for a name that is no section, and whatever `load` raises.
    """
    wanted = wanted_sections(only)
    requested = frozenset(SECTIONS) if wanted is None else wanted
    if not isinstance(run, Run):
        options = SummaryOptions(sections=wanted).with_rules(communication_rules)
        run = load(run, options=options, cache=cache, ranks_from=ranks_from, step_anchor=step_anchor)
    if run.sections is not None and (missing := requested - run.sections):
        hint = f"load it with these sections too; it has {', '.join(sorted(run.sections))}"
        raise UsageError(f"the run was loaded without what {', '.join(sorted(missing))} needs", hint=hint)
    analysis_input = AnalysisInput(run=run, wanted=requested, known_work=work)
    results = {name: analysis_input.result(section) for name, section in SECTIONS.items() if name in requested}
    guard = analysis_input.guard
    results = guard.run("savings of findings", results, with_stated_savings, results)
    is_whole = not guard.notes  # else whatever stands out may be what is lost
    candidates = _candidates(results)
    candidates = guard.run("idle time of the chain", candidates, _with_idle_chain, run, results, candidates)
    if is_whole and not held(candidates) and results.keys() >= _PROOF:
        candidates.append(without_findings(run, results))
    candidates += guard.run("the cost of recording", [], overhead_findings, run)
    noise = guard.run("the noise of steps", [], _noise, run)
    findings = list(held(candidates))
    findings = guard.run("order of findings", findings, _ranked, run, results, findings, noise)
    if (whatif := results.get("whatif")) is not None and not isinstance(whatif, Unavailable):
        results["whatif"] = with_fields(whatif, trials=None)
    close = sorted((each for each in (*candidates, *noise) if not each.holds), key=lambda each: -each.closeness)
    if guard.notes:
        run = replace(run, notes=(*run.notes, *guard.notes))
    arrived = guard.run("arrivals", None, analysis_input.once, arrivals) if "stragglers" in requested else None
    return Report(run=run, results=results, findings=tuple(findings), close=tuple(close), arrivals=arrived)


def _candidates(results: Mapping[str, Result | Unavailable]) -> list[Finding]:
    """Return what the sections found, and what was close to that."""
    return [
        replace(finding, evidence={"section": name, **finding.evidence})  # where its tables are
        for name, result in results.items()
        if isinstance(result, Result)
        for finding in result.findings
    ]


def _noise(run: Run) -> list[Finding]:
    return noisy_steps(run, paused_by_step_ns(run))


def _with_idle_chain(run: Run, results: Mapping[str, Any], candidates: list[Finding]) -> list[Finding]:
    """Return the candidates with idle time as the diagnosis has it: that of a named rank is no idle time of all."""
    diagnosis = results.get("diagnosis")
    if not isinstance(diagnosis, Diagnosis) or not diagnosis.step_ns or "breakdown" not in results:
        return candidates
    path_ns = summed((row["cause"], row["time_ns"]) for row in rows_of(diagnosis, "causes") if not row["ranks"])
    path_ns = Counter({cause: path_ns[cause] for cause in IDLE_CAUSES})
    others = [each for each in candidates if each.id not in _IDLE_IDS]
    for finding in idle_findings(run, diagnosis.step_ns, path_ns):
        of_section = replace(finding, evidence={"section": "breakdown", **finding.evidence})
        others.append(state_saving(of_section, results.get("whatif")))
    return others


def _ranked(run: Run, results: Mapping[str, Any], findings: list[Finding], noise: list[Finding]) -> list[Finding]:
    """Return the findings in their order, with that about noise."""
    diagnosis, whatif = results.get("diagnosis"), results.get("whatif")
    causes = rows_of(diagnosis, "causes") if isinstance(diagnosis, Diagnosis) else ()
    step_ns = diagnosis.step_ns if causes and isinstance(diagnosis, Diagnosis) else mean_step_ns(run)
    ranked = rank_findings(findings, step_ns, causes, lambda finding, made: state_saving(finding, whatif, made))
    ranked += unsaid_cause(run, results, ranked)
    ranked = [with_next_limit(finding, whatif, ranked[:index]) for index, finding in enumerate(ranked)]
    return with_noise(held(noise), [with_replay_error(finding, whatif) for finding in ranked])
