"""Replace the names in what the probe wrote of its job."""

from __future__ import annotations

import re

from msgspec.structs import replace

from tracekit.model.metadata import CaptureMetadata, Progress
from tracekit.model.metadata.progress import ProgressHeader
from tracekit.model.metadata.rpc import RpcUse
from tracekit.model.metadata.training import DdpModule, Settings
from tracekit.model.names.pseudonyms import Namer, group_name, host_name, module_name

__all__ = ["anonymous_metadata", "anonymous_progress", "anonymous_run_id"]

# Of the probe (a time and a hash), and of torchrun: numbers alone.
_PUBLIC_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d*")
_HOOKS_OF_TORCH = frozenset(
    {
        *("none", "noop_hook", "allreduce_hook", "powerSGD_hook", "batched_powerSGD_hook", "post_localSGD_hook"),
        *("fp16_compress_hook", "bf16_compress_hook", "fp16_compress_wrapper", "bf16_compress_wrapper"),
        *("quantization_pertensor_hook", "quantization_perchannel_hook"),
    }
)
# What the probe calls the ways in which a job is parallel.
_STRATEGIES = frozenset(
    {
        *("ddp", "fsdp1", "fsdp2", "hsdp", "zero1", "zero2", "zero3", "dp", "manual_dp"),
        *("tp", "sp", "pp", "ep", "cp", "rpc"),
    }
)


def anonymous_metadata(metadata: CaptureMetadata, namer: Namer) -> CaptureMetadata:
    """Return the metadata with other names of hosts, groups, modules, workers, and unknown strategies."""
    mesh = metadata.mesh
    return replace(
        metadata,
        run_id=anonymous_run_id(metadata.run_id, namer),
        host=host_name(namer, metadata.host),
        host_id=namer.name("host", metadata.host_id),
        strategies=[slug if slug in _STRATEGIES else namer.name("job", slug) for slug in metadata.strategies],
        mesh=None if mesh is None else replace(mesh, names=[group_name(namer, name) for name in mesh.names]),
        groups=[
            replace(group, name=group_name(namer, group.name), desc=group_name(namer, group.desc))
            for group in metadata.groups
        ],
        ddp=[_ddp(module, namer) for module in metadata.ddp],
        fsdp=[replace(unit, module=module_name(namer, unit.module)) for unit in metadata.fsdp],
        notes=[replace(note, text=namer.text(note.text)) for note in metadata.notes],
        rpc=None if metadata.rpc is None else _rpc(metadata.rpc, namer),
        settings=[_settings(settings, namer) for settings in metadata.settings],
    )


def anonymous_progress(progress: Progress, namer: Namer) -> Progress:
    """Return a progress file with other names."""
    header: ProgressHeader = replace(
        progress.header,
        run_id=anonymous_run_id(progress.header.run_id, namer),
        host=host_name(namer, progress.header.host),
        host_id=namer.name("host", progress.header.host_id),
        elastic_id=namer.name("job", progress.header.elastic_id),
    )
    return Progress(header=header, calls=progress.calls)


def anonymous_run_id(run_id: str, namer: Namer) -> str:
    """Return the id of a run; one that consists of numbers stays."""
    return run_id if _PUBLIC_RUN_ID.fullmatch(run_id) else namer.name("job", run_id)


def _ddp(module: DdpModule, namer: Namer) -> DdpModule:
    buckets = [
        replace(bucket, parameters=[module_name(namer, name) for name in bucket.parameters])
        for bucket in module.buckets
    ]
    hook = module.comm_hook
    if hook is not None and hook not in _HOOKS_OF_TORCH:
        hook = namer.name("function", hook)
    return replace(module, module=module_name(namer, module.module), buckets=buckets, comm_hook=hook)


def _rpc(use: RpcUse, namer: Namer) -> RpcUse:
    calls = [
        replace(call, callee=namer.name("worker", call.callee), function=namer.name("function", call.function))
        for call in use.calls
    ]
    services = [replace(service, function=namer.name("function", service.function)) for service in use.services]
    return replace(use, worker=namer.name("worker", use.worker), calls=calls, services=services)


def _settings(settings: Settings, namer: Namer) -> Settings:
    values = {key: namer.text(value) if isinstance(value, str) else value for key, value in settings.values.items()}
    return replace(settings, modules=[module_name(namer, name) for name in settings.modules], values=values)
