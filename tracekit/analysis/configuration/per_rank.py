"""The configuration of one rank, as its capture recorded it.

Settings have the names under which a program sets them: `bucket_cap_mb`, not `bucket_cap_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tracekit.model.metadata import CaptureMetadata, DdpModule, Settings, SettingValue

_MIB = 1 << 20

__all__ = ["recorded_settings"]


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
    yield from (settings for settings in metadata.settings if settings.component == "compile")
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
        whole = module.bucket_cap_bytes % _MIB == 0
        values["bucket_cap_mb"] = module.bucket_cap_bytes // _MIB if whole else module.bucket_cap_bytes / _MIB
    known: dict[str, SettingValue] = {
        "comm_hook": module.comm_hook,
        "gradient_as_bucket_view": module.gradient_as_bucket_view,
        "broadcast_buffers": module.broadcast_buffers,
    }
    values |= {name: value for name, value in known.items() if value is not None}
    return values | {"static_graph": module.static_graph, "find_unused_parameters": module.find_unused}
