"""Which names in a decoded trace are replaced, and which stay: of hosts, paths, modules, groups, annotations, threads.

Everything that is made of a trace is made of what `anonymized` returns, so that no output has to think of it. The names
of kernels and operators stay. Of all other names only those of a public form stay, such as the labels that torch writes
and the categories of Kineto. Names in what the probe wrote about its job are replaced, too.

Arguments of an event stay if torch, Kineto or NCCL write them and their value is public, too. A value is public if it
has a public form (of a type, of a collective), or no letters. All other arguments are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Int32, TraceHeader, Track
from tracekit.model.metadata import CaptureMetadata, Progress
from tracekit.model.metadata.communication import RpcUse
from tracekit.model.metadata.job import ProgressHeader
from tracekit.model.metadata.training import DdpModule, Settings
from tracekit.model.names.pseudonyms import Namer, group_name, host_name, module_name
from tracekit.model.spans import LABEL_PREFIX
from tracekit.read.decode.anonymous.annotations import anonymous_annotation, is_collective_name
from tracekit.read.decode.anonymous.python_functions import anonymous_python_function
from tracekit.read.decode.field_values import split_members

_THREAD = re.compile(r"(thread -?\d+ )\((.*)\)")
# Of Kineto, and of torch, whose names Linux cuts after 15 characters.
_PUBLIC_THREAD = re.compile(
    r"|python[\d.]*|stream (?:-?\d+|all) *|GPU \d+|CPU|Spans|Traces|PyTorch Profiler|-?\d+"
    r"|pt_(?:main_thread|autograd_\d+|data_worker|data_pin|dist_engine|elastic|gloo_runloop|nccl_heartbt|nccl_watchdg"
    r"|nccl_runloop|tcpstore|tcpstore_uv|threadpool|workerserver)"
)
_PUBLIC_KEYS = frozenset(
    {
        *("schemaVersion", "deviceProperties", "trace_id", "baseTimeNanoseconds", "displayTimeUnit"),
        *("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"),
        *("cuda_runtime_version", "cuda_driver_version", "cupti_version"),
    }
)

ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
PYTHON_FUNCTION = "python_function"
WITH_PUBLIC_NAMES = (
    *("cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_profiler_range", "hpu_op"),
    *("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver"),
)
"""Categories of operators, kernels, copies, and calls of a runtime. The names of these events stay."""
PUBLIC_CATEGORIES = frozenset(
    {
        *("", PYTHON_FUNCTION, *ANNOTATIONS, *WITH_PUBLIC_NAMES),
        *("ac2g", "async_cpu_gpu", "async_gpu", "fwdbwd", "fwd_bwd", "cuda_sync"),
        *("Trace", "overhead", "cpu_instant_event", "cuda_event", "external_correlation", "collective_comm"),
        *("glow_runtime", "gpu_pm_counter", "mtia_ccp_events", "mtia_counters", "mtia_insight", "mtia_workloadd"),
    }
)
"""Kineto's categories."""

_GROUPS = frozenset({"Process Group Name", "Process Group Description"})
_KERNELS = frozenset({"kernel", "kernel_name"})
_BACKENDS = frozenset({"triton", "cutlass", "ck", "cpp", "cuda"})
# Keys whose values have no letters that say anything.
_KEYS_OF_NUMBERS = frozenset(
    {
        # of operators and collectives
        *("Input Dims", "Input Strides", "flops", "Module Hierarchy", "num_warps", "num_stages", "grid", "stream"),
        *("In msg nelems", "Out msg nelems", "In split size", "Out split size", "Group size", "Process Group Ranks"),
        *("Rank", "Src Rank", "Dst Rank", "Seq", "Global rank start", "Global rank stride", "Is async", "Comms Id"),
        *("Ranks", "Python thread", "Python module id", "finished", "Op count"),
        # of kernels, copies and calls of the runtime
        *("queued", "device", "context", "block", "registers per thread", "shared memory", "blocks per SM"),
        *("warps per SM", "est. achieved occupancy %", "graph id", "graph node id", "graph", "graph node", "priority"),
        *("bytes", "memory bandwidth (GB/s)", "cbid", "ptr", "src", "dst", "size", "kind", "channel", "channel_type"),
        *("from device", "to device", "in context", "external id", "srcDevice", "dstDevice", "fwd_bwd"),
        *("wait_on_stream", "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id", "cuda_event_id", "corr_id"),
        # of memory
        *("Device Type", "Device Id", "Addr", "Bytes", "Total Allocated", "Total Reserved"),
    }
)
_INTEGER_TYPE = r"(?:(?:un)?signed )?(?:char|short|int|long|long long|__int64)(?: int)?|u?int(?:8|16|32|64)_t"
_SCALAR_TYPE = (
    rf"{_INTEGER_TYPE}|float|double|bool|(?:c10|at)::(?:Half|BFloat16|qu?int(?:8|32)|quint[42]x[24]|bits\w{{1,5}}"
    r"|Float[48]_e\dm\d(?:fn|fnuz|fnu)?(?:_x2)?)"
)
# Of an input: torch's name of a C++ type, or of a kind of value.
_INPUT_TYPE = re.compile(
    rf"|{_SCALAR_TYPE}|c10::complex<(?:{_SCALAR_TYPE})>|(?:Tensor|Scalar|Generic|Optional|Double|Int|Bool)(?:List)?"
    r"|GenericDict|None|NoneType|Storage|ComplexDouble|Sym(?:Int|Float|Bool)|Tuple|String|Blob|Future|Await|Device"
    r"|Stream|Object|PyObject|Uninitialized|Capsule|RRef|Quantizer|Generator|Enum|nullptr \(uninitialized\)"
)
_DTYPE = re.compile(
    r"(?:torch\.)?(?:u?int(?:8|16|32|64)?|byte|char|short|long|half|double|bool|bfloat16|complex(?:half|float|double)"
    r"|complex(?:32|64|128)|qu?int(?:8|32)|quint[42]x[24]|bits\w{1,5}|float(?:16|32|64)?|unknown_scalar"
    r"|float[48]_e\dm\d(?:fn|fnuz|fnu)?(?:_x2)?)",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[^\W\d_]")
_WITHOUT_MEANING = re.compile(r"\b(?:true|false|null|none|inf|nan|\d+e[-+]?\d+)\b")

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
        *("ddp", "fsdp1", "fsdp2", "hsdp", "zero1", "zero2", "zero3", "dp"),
        *("manual_dp", "manual_fsdp", "local_sgd"),
        *("tp", "sp", "pp", "ep", "cp", "rpc"),
    }
)


def anonymized(trace: DecodedTrace, namer: Namer) -> DecodedTrace:
    """Return the trace with other names; its times, rows and numbers are the same.

    `file` and the notes have the file's own name: it is read again, and a run's notes are replaced all at once.
    """
    return replace(
        trace,
        header=_header(trace.header, namer),
        events=_events(trace.events, namer),
        keys={key: text for key, text in trace.keys.items() if key in _PUBLIC_KEYS},
    )


def _header(header: TraceHeader, namer: Namer) -> TraceHeader:
    groups = (
        replace(group, name=group_name(namer, group.name), description=group_name(namer, group.description))
        for group in header.process_groups
    )
    return replace(
        header,
        host=None if header.host is None else host_name(namer, header.host),
        process_groups=tuple(groups),
        metadata=None if header.metadata is None else anonymous_metadata(header.metadata, namer),
        profiler_messages=tuple(map(namer.text, header.profiler_messages)),
    )


def _events(events: EventTable, namer: Namer) -> EventTable:
    strings = _Strings(events.strings)
    python, public = events.in_category(PYTHON_FUNCTION), events.in_category(*WITH_PUBLIC_NAMES)
    labelled = events.named(lambda name: name.startswith(LABEL_PREFIX))
    name = events.name.copy()
    for rows, renamed in ((labelled | ~(public | python), anonymous_annotation), (python, anonymous_python_function)):
        name[rows] = strings.renamed(events.name[rows], partial(renamed, namer=namer))
    of_collectives, renamed_group = events.collective_arguments, partial(group_name, namer)
    return replace(
        events,
        name=name,
        category=strings.renamed(events.category, partial(_category, namer=namer)),
        tracks=[_track(track, namer) for track in events.tracks],
        counters=replace(events.counters, names=tuple(namer.name("annotation", n) for n in events.counters.names)),
        extra_args=strings.renamed(events.extra_args, partial(anonymous_arguments, namer=namer)),
        collective_arguments=replace(
            of_collectives,
            group_name=strings.renamed(of_collectives.group_name, renamed_group),
            group_description=strings.renamed(of_collectives.group_description, renamed_group),
        ),
        strings=strings.texts,
    )


class _Strings:
    """The texts that columns refer to, to which new ones are added."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = list(texts)
        self._numbers = {text: number for number, text in enumerate(texts)}

    def renamed(self, column: Int32, rename: Callable[[str], str | None]) -> Int32:
        """Return a column, int32 [n], that refers to what `rename` returns for each of its distinct texts.

        None becomes `ABSENT`.
        """
        present, index = np.unique(column, return_inverse=True)
        new = [ABSENT if number == ABSENT else self._number(rename(self.texts[number])) for number in present.tolist()]
        return np.array(new, dtype=np.int32)[index] if len(new) else column

    def _number(self, text: str | None) -> int:
        if text is None:
            return ABSENT
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def _category(category: str, namer: Namer) -> str:
    return category if category in PUBLIC_CATEGORIES else namer.name("category", category)


def _track(track: Track, namer: Namer) -> Track:
    return Track(
        pid=_thread(track.pid, namer) if isinstance(track.pid, str) else track.pid,
        tid=_thread(track.tid, namer) if isinstance(track.tid, str) else track.tid,
        process_name=_thread(track.process_name, namer),
        thread_name=_thread(track.thread_name, namer),
    )


def _thread(name: str, namer: Namer) -> str:
    if (thread := _THREAD.fullmatch(name)) is not None:
        return f"{thread[1]}({_thread(thread[2], namer)})"
    return name if _PUBLIC_THREAD.fullmatch(name) else namer.name("thread", name)


def anonymous_arguments(text: str, namer: Namer) -> str | None:
    """Return those of an event's arguments that stay, in the form that `select_extra_args` returns; None for none."""
    members = (_member(member, namer) for member in split_members(text))
    kept = ",\n".join(member for member in members if member is not None)
    return f"{{{kept}}}" if kept else None


def _member(member: str, namer: Namer) -> str | None:
    """Return an argument and its key, as JSON; None if it is left out."""
    try:
        ((key, raw),) = msgspec.json.decode(f"{{{member}}}", type=dict[str, msgspec.Raw]).items()
        shown = bytes(raw).decode()
        if key in _KEYS_OF_NUMBERS:
            return None if _says_something(shown) else _as_json(key, shown)
        value = _public_value(key, msgspec.json.decode(raw), namer)
    except (ValueError, RecursionError):  # nothing that torch writes
        return None
    return None if value is None else _as_json(key, msgspec.json.encode(value).decode())


def _as_json(key: str, value: str) -> str:
    return f"{msgspec.json.encode(key).decode()}: {value}"


def _public_value(key: str, value: Any, namer: Namer) -> Any:
    """Return what is public of the value of a key that may have letters; None if nothing is."""
    if key == "Input type":
        return _public_types(value)
    if key == "Concrete Inputs":
        return ["" if _says_something(text) else text for text in value] if _is_texts(value) else None
    if not isinstance(value, str):
        return None
    if key in _GROUPS:
        return group_name(namer, value)
    is_public = (
        key in _KERNELS
        or (key == "kernel_backend" and value in _BACKENDS)
        or (key == "Collective name" and is_collective_name(value))
        or (key == "dtype" and _DTYPE.fullmatch(value) is not None)
    )
    return value if is_public else None


def _public_types(types: Any) -> Any:
    """Return a list of types, or of such lists, in which a type that torch does not have is empty."""
    if isinstance(types, list):
        return [_public_types(each) for each in types]
    return types if isinstance(types, str) and _INPUT_TYPE.fullmatch(types) is not None else ""


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _says_something(text: str) -> bool:
    return _LETTER.search(_WITHOUT_MEANING.sub("", text.lower())) is not None


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
