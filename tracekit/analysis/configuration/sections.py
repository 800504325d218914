"""The section on configuration."""

from __future__ import annotations

from tracekit.analysis.configuration import tables
from tracekit.analysis.configuration.per_rank import recorded_settings
from tracekit.analysis.configuration.settings import Configuration, configuration
from tracekit.analysis.configuration.tables import CONFIGURATION
from tracekit.analysis.section import Section

__all__ = ["CONFIGURATION_SECTION"]

CONFIGURATION_SECTION: Section[Configuration] = Section(
    name="configuration",
    reads=(CONFIGURATION,),
    keeps={CONFIGURATION: lambda recorded: recorded_settings(recorded.trace.header.metadata)},
    analyze=lambda given: configuration(given.run),
    tables=(tables.SETTINGS,),
)
