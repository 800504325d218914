"""Which arguments of an event stay: those that torch, Kineto or NCCL write, if their value is public, too.

A value is public if it has a public form (of a type, of a collective), or no letters. All other arguments are left out.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tracekit.model.names.pseudonyms import Namer, group_name
from tracekit.read.decode.anonymous.collective_names import is_collective_name
from tracekit.read.decode.extra_args import split_members

__all__ = ["anonymous_arguments"]

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
