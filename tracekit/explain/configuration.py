"""How the job is configured, over all ranks, and which ranks are configured otherwise than their like.

The settings of one rank are those that its capture recorded. They have the names under which a program sets them:
`bucket_cap_mb`, not `bucket_cap_bytes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tracekit.explain.section import Section, Unavailable
from tracekit.findings.finding import Finding
from tracekit.findings.steps import different_settings
from tracekit.model.metadata import CaptureMetadata, DdpModule, Settings, SettingValue, bucket_cap_mb
from tracekit.model.run import Run
from tracekit.model.summary import Part, RankSummary
from tracekit.model.table import Column, Frame, Table

# What torch.compile did, and an order by size: these differ between ranks that are configured alike.
_RESULTS = frozenset({"graphs", "graph_breaks", "parameters"})

_Held = dict[str, tuple[SettingValue, list[int]]]  # by the value as text: 1 is not True


SETTINGS = Table(
    "configuration",
    (
        Column("component", "str", "", "ddp, fsdp1, fsdp2, zero, pipeline, compile, precision or environment."),
        Column("modules", "list[str]", "", 'Names of the modules for which it holds, "" is the outermost; none: all.'),
        Column("setting", "str", "", "The name under which a program sets it."),
        Column("value", "value?", "", "A number, text or boolean; null: None, that is not set."),
        Column("ranks", "list[int]", "", "The ranks that have this value."),
    ),
)


def _latest(windows: Sequence[tuple[Settings, ...]]) -> tuple[Settings, ...]:
    """Return the settings of the last recording that knows any: what a program changes is in effect from then on."""
    return next((settings for settings in reversed(windows) if settings), ())


CONFIGURATION: Part[tuple[Settings, ...]] = Part(
    name="configuration", type=tuple[Settings, ...], empty=tuple, merge=_latest
)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The configuration of all ranks.

    Attributes:
        settings: rows of SETTINGS.
        findings: that ranks of one kind are configured differently.
    """

    settings: Frame = Frame(SETTINGS)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Difference:
    """A setting that differs between ranks that do the same, or a component that only some of them have.

    Attributes:
        module: None for the whole component.
        setting: None for a component; its values are True for ranks that have it, and False.
        ranks: by value, that of the most ranks first.
    """

    component: str
    module: str | None
    setting: str | None
    ranks: tuple[tuple[SettingValue, list[int]], ...]


def configuration(run: Run) -> Configuration | Unavailable:
    """Return the settings of all ranks."""
    ranks: dict[tuple[str, tuple[str, ...], str, str], list[int]] = defaultdict(list)
    values: dict[tuple[str, tuple[str, ...], str, str], SettingValue] = {}
    for summary in run.ranks:
        for settings in summary[CONFIGURATION]:
            for setting, value in settings.values.items():
                # Ranks find modules in any order. 1 is not True.
                key = (settings.component, tuple(sorted(settings.modules)), setting, repr(value))
                ranks[key].append(summary.rank)
                values[key] = value
    if not ranks:
        return Unavailable(reason="only recordings of tracekit say how a job is configured", expected=True)
    order = list(dict.fromkeys(component for component, *_ in ranks))
    rows = [
        {"component": key[0], "modules": list(key[1]), "setting": key[2], "value": values[key], "ranks": of_key}
        for key, of_key in sorted(ranks.items(), key=lambda item: order.index(item[0][0]))
    ]
    return Configuration(settings=rows, findings=tuple(_differences(run)))


def value_of(run: Run, component: str, setting: str) -> SettingValue | Unavailable:
    """Return the value of a setting if all ranks and modules that have it agree."""
    found = {
        repr(settings.values[setting]): settings.values[setting]
        for summary in run.ranks
        for settings in summary[CONFIGURATION]
        if settings.component == component and setting in settings.values
    }
    if len(found) == 1:
        return next(iter(found.values()))
    return Unavailable(reason=f"{setting} differs" if found else f"{setting} is not known")


# ---- differences ----------------------------------------------------------------------------------------------------
def _differences(run: Run) -> Iterator[Finding]:
    """Yield a finding if ranks that should be configured alike are not."""
    alike: dict[object, list[RankSummary]] = defaultdict(list)
    for summary in run.ranks:
        stages = None if summary.pipeline is None else tuple(summary.pipeline.layout.stage_ids)
        alike[summary.strategies, stages, summary.serves_only].append(summary)
    found = [difference for summaries in alike.values() for difference in _differences_of(summaries)]
    if not found:
        return
    odd = sorted({rank for difference in found for _, ranks in difference.ranks[1:] for rank in ranks})
    yield different_settings(evidence={"differences": [_evidence(difference) for difference in found], "ranks": odd})


def _differences_of(summaries: Sequence[RankSummary]) -> Iterator[_Difference]:
    """Yield what differs between these ranks. Ranks with equal settings are compared once."""
    ranks_of: dict[bytes, list[int]] = defaultdict(list)
    settings_of: dict[bytes, tuple[Settings, ...]] = {}
    for summary in summaries:
        key = msgspec.json.encode(summary[CONFIGURATION])
        ranks_of[key].append(summary.rank)
        settings_of[key] = summary[CONFIGURATION]
    if len(ranks_of) < 2:
        return
    by_setting: dict[tuple[str, str | None, str | None], _Held] = defaultdict(dict)
    components = dict.fromkeys(settings.component for of_ranks in settings_of.values() for settings in of_ranks)
    for key, of_ranks in settings_of.items():
        present = {settings.component for settings in of_ranks}
        for each in components:
            has = each in present
            by_setting[each, None, None].setdefault(repr(has), (has, []))[1].extend(ranks_of[key])
        for settings in of_ranks:
            for module in settings.modules or (None,):
                for setting, value in settings.values.items():
                    if setting not in _RESULTS:
                        held = by_setting[settings.component, module, setting]
                        held.setdefault(repr(value), (value, []))[1].extend(ranks_of[key])
    for (component, module, name), held in by_setting.items():
        if len(held) > 1:
            most_first = sorted(held.values(), key=lambda item: (-len(item[1]), min(item[1])))
            yield _Difference(component=component, module=module, setting=name, ranks=tuple(most_first))


def _evidence(difference: _Difference) -> dict[str, Any]:
    return {
        "component": difference.component,
        "module": difference.module,
        "setting": difference.setting,
        "values": [{"value": value, "ranks": list(ranks)} for value, ranks in difference.ranks],
    }


def recorded_settings(metadata: CaptureMetadata | None) -> tuple[Settings, ...]:
    """Return the settings of DDP, FSDP, ZeRO, the pipeline, the compiler and of number formats; none without a capture.

    What a capture did not know, such as one by an older version, is left out.
    """
    return () if metadata is None else tuple(_settings(metadata))


def _settings(metadata: CaptureMetadata) -> Iterator[Settings]:
    for module in metadata.ddp:
        yield Settings(component="ddp", modules=[module.module], values=_of_ddp(module))
    for component in ("fsdp1", "fsdp2", "zero"):
        yield from (settings for settings in metadata.settings if settings.component == component)
    if (layout := metadata.pipeline) is not None:
        values: dict[str, SettingValue] = {"schedule": layout.schedule, "n_microbatches": layout.microbatches}
        values |= {"stages": layout.stages, "stages_per_rank": layout.virtual_stages}
        yield Settings(component="pipeline", values=values)
    yield from (settings for settings in metadata.settings if settings.component in ("compile", "environment"))
    if (precision := metadata.precision) is not None:
        yield Settings(
            component="precision",
            values={
                "parameters": ", ".join(precision.parameters) or None,
                "autocast": ", ".join(precision.autocast) or None,
                "grad_scaler": precision.scaled,
            },
        )


def _of_ddp(module: DdpModule) -> dict[str, SettingValue]:
    values: dict[str, SettingValue] = {}
    if module.bucket_cap_bytes is not None:
        cap_mb = bucket_cap_mb(module.bucket_cap_bytes)
        values["bucket_cap_mb"] = int(cap_mb) if cap_mb.is_integer() else cap_mb
    known: dict[str, SettingValue] = {
        "comm_hook": module.comm_hook,
        "gradient_as_bucket_view": module.gradient_as_bucket_view,
        "broadcast_buffers": module.broadcast_buffers,
    }
    values |= {name: value for name, value in known.items() if value is not None}
    return values | {"static_graph": module.static_graph, "find_unused_parameters": module.find_unused}


CONFIGURATION_SECTION: Section[Configuration] = Section(
    name="configuration",
    reads=(CONFIGURATION,),
    keeps={CONFIGURATION: lambda recorded: recorded_settings(recorded.trace.header.metadata)},
    analyze=lambda given: configuration(given.run),
    tables=(SETTINGS,),
)
