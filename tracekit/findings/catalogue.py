"""The catalogue of findings: an entry each, with its id, where it comes from, its thresholds and its sentence.

An analysis computes numbers and gives them to an entry, which makes the finding. Only entries compose sentences. A
module of entries is a line of `MODULES`. docs/findings.md is made from the catalogue.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from tracekit.findings.finding import Condition, Finding, Threshold
from tracekit.model.notes import Severity

MODULES = (
    "tracekit.findings.steps",
    "tracekit.findings.hosts",
    "tracekit.findings.stragglers",
    "tracekit.findings.communication",
    "tracekit.findings.ddp",
    "tracekit.findings.fsdp",
    "tracekit.findings.pipeline",
    "tracekit.rpc.findings",
    "tracekit.optables.findings",
)
"""Where entries stand, in the order of the documentation."""

NEXT_LIMITS = {"host": "the host launches earlier", "network": "transfers take less", "data": "data is loaded ahead"}
"""What must come first where a finding saves far less than the time that it is about, by what limits the step next."""

_PARAMETER = re.compile(r"\n\n(?=[a-z_, ]+: )")

Sentence = tuple[str, str | None]
"""What is the case, and what to do about it; None if there is nothing to do.

One fact a sentence. There is no full stop at the end.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """One finding of the catalogue. Called with the numbers of a run, it returns the finding.

    Attributes:
        id: in kebab-case; it stays.
        term: the field's term, with which the sentence begins; or a function that returns it, of the numbers.
        section: whose tables have the numbers.
        thresholds: what something must reach to be this finding.
        meaning: what it means, in one paragraph or several.
        compose: returns the sentence from numbers by name: evidence, or other fields of the finding.
        example: of these numbers, for the documentation.
    """

    id: str
    term: str | Callable[[Mapping[str, object]], str]
    section: str
    thresholds: tuple[Threshold, ...]
    meaning: str
    compose: Callable[..., Sentence]
    example: Mapping[str, object]

    def __call__(
        self,
        *,
        evidence: Mapping[str, object],
        severity: Severity = "warning",
        conditions: Sequence[Condition] = (),
        **fields: Any,
    ) -> Finding:
        """Return the finding of these numbers. fields: others of `Finding`."""
        numbers = {**fields, **evidence}
        text, action = self.sentence(numbers)
        return Finding(
            id=self.id,
            tag=self.term_of(numbers).upper(),
            severity=severity,
            text=text,
            action=action,
            evidence=dict(evidence),
            conditions=tuple(conditions),
            **fields,
        )

    def sentence(self, numbers: Mapping[str, object]) -> Sentence:
        """Return what is the case and what to do, of numbers by name, of which the entry takes those that it needs."""
        text, action = self.compose(**{name: numbers[name] for name in self._parameters if name in numbers})
        return f"{self.term_of(numbers)}: {text}", action

    def term_of(self, numbers: Mapping[str, object]) -> str:
        """Return the term of a finding with these numbers."""
        return self.term if isinstance(self.term, str) else self.term(numbers)

    @cached_property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.compose).parameters)


_ENTRIES: dict[str, Entry] = {}


def entry(
    entry_id: str,
    term: str | Callable[[Mapping[str, object]], str],
    section: str,
    *thresholds: Threshold,
    example: Mapping[str, object],
    meaning: str | None = None,
) -> Callable[[Callable[..., Sentence]], Entry]:
    """Put a function that composes a sentence, without its term, into the catalogue: it becomes the entry.

    meaning: None for the function's docstring.
    """

    def register(compose: Callable[..., Sentence]) -> Entry:
        said = meaning or _PARAMETER.split(inspect.getdoc(compose) or "")[0]
        made = Entry(
            id=entry_id,
            term=term,
            section=section,
            thresholds=thresholds,
            meaning=said,
            compose=compose,
            example=example,
        )
        _ENTRIES[entry_id] = made
        return made

    return register


@cache
def catalogue() -> Mapping[str, Entry]:
    """Return all entries by id, in the order of the documentation."""
    for module in MODULES:
        importlib.import_module(module)
    order = {name: index for index, name in enumerate(MODULES)}
    return dict(sorted(_ENTRIES.items(), key=lambda item: order[item[1].compose.__module__]))


def restated(finding: Finding, evidence: Mapping[str, object], **changes: Any) -> Finding:
    """Return a finding with other numbers, and the sentence of these. changes: of other fields of the finding."""
    text, action = catalogue()[finding.id].sentence({**vars(finding), **changes, **evidence})
    return replace(finding, text=text, action=action, evidence=dict(evidence), **changes)
