"""Which names are communication, and of which kind: rules that a user can extend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tracekit.model.communication import DTYPES
from tracekit.model.events import ABSENT

__all__ = [
    "DEFAULT_RULES",
    "CommunicationRule",
    "bytes_per_element",
    "dtype_index",
    "kind_of_collective",
    "kind_of_kernel",
    "size_in_bytes",
]


@dataclass(frozen=True)
class CommunicationRule:
    """A kernel is communication if `pattern` is found in its name (`re.search`, case sensitive).

    Attributes:
        kind: one of `KINDS`. None: the name tells the kind (`ncclKernel_AllReduce...`), else it is "unknown".
    """

    pattern: str
    kind: str | None = None


DEFAULT_RULES: tuple[CommunicationRule, ...] = (
    CommunicationRule(r"^(?:void )?nccl\w*Kernel"),  # NCCL and RCCL, all generations
    CommunicationRule(r"\bmscclpp?::|\bmscclKernel|^(?:void )?mscclpp?"),
    CommunicationRule(r"deep_ep::(?:internode|intranode|internode_ll)::\w*dispatch", "dispatch"),
    CommunicationRule(r"deep_ep::(?:internode|intranode|internode_ll)::\w*combine", "combine"),
    CommunicationRule(r"deep_ep::(?:internode|intranode|internode_ll)::"),
    CommunicationRule(r"nvshmem"),
    # symmetric memory and custom all-reduces (vLLM, SGLang, TensorRT-LLM)
    CommunicationRule(r"\b(?:multimem|one_shot|two_shot)_all_reduce", "all_reduce"),
    CommunicationRule(
        r"cross_device_reduce|\ball_?reduce_(?:one|two)_?shot|one_?shot_?all_?reduce|two_?shot_?all_?reduce",
        "all_reduce",
    ),
    CommunicationRule(r"allreduce_fusion_kernel|lamport_?style", "all_reduce"),
    CommunicationRule(r"\bmultimem_all_gather", "all_gather"),
    CommunicationRule(r"symm_mem|symmetric_memory"),
)

# Searched in this order, in a name without separators: some of the longer names contain a shorter one.
_KINDS_IN_NAMES = (
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("sendrecv", "send_recv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)
_NCCL_OPERATION = re.compile(
    r"Kernel\w*?_(AllReduce|ReduceScatter|AllGather|AllToAll\w*|SendRecv|Broadcast|Reduce|Gather|Scatter)"
)

_MAX_ELEMENTS = 1 << 56

_NAMES_OF_DTYPES = {
    "bool": "bool",
    "int8": "char int8 signedchar",
    "uint8": "byte uint8 unsignedchar",
    "int16": "short int16 shortint",
    "uint16": "uint16",
    "float16": "half float16 c10::half",
    "bfloat16": "bfloat16 c10::bfloat16",
    "int32": "int int32",
    "uint32": "uint32",
    "float32": "float float32",
    "int64": "long longint int64 longlong",
    "uint64": "uint64",
    "float64": "double float64",
    "complex64": "complexfloat c10::complex<float> complex64",
    "complex128": "complexdouble c10::complex<double> complex128",
}
_DTYPE_BY_NAME = {name: dtype for dtype, names in _NAMES_OF_DTYPES.items() for name in names.split()}
_MOST_NAMES = 4096  # a trace repeats few names; a damaged one may have any number
_BYTES = {dtype: int(re.sub(r"\D", "", dtype) or 8) // 8 for dtype in DTYPES}


def kind_of_kernel(name: str, rules: Sequence[CommunicationRule] = DEFAULT_RULES) -> str | None:
    """Return the kind of communication of a kernel with this name; None if no rule matches."""
    for rule in rules:
        if re.search(rule.pattern, name):
            if rule.kind is not None:
                return rule.kind
            operation = _NCCL_OPERATION.search(name)
            return kind_of_collective(operation.group(1)) if operation else "unknown"
    return None


@lru_cache(_MOST_NAMES)
def kind_of_collective(name: str) -> str:
    """Return the kind of a collective by any of its names, such as `allreduce_coalesced` or `_allgather_base`."""
    bare = re.sub(r"[_:]", "", name.lower().removeprefix("_c10d_functional::").removeprefix("c10d::"))
    return next((kind for part, kind in _KINDS_IN_NAMES if part in bare), "unknown")


@lru_cache(_MOST_NAMES)
def dtype_index(dtype: str) -> int:
    """Return the index in `DTYPES` of a data type as torch or Kineto names it, or ABSENT."""
    bare = dtype.lower().replace(" ", "").removeprefix("torch.")
    name = "float8" if "float8" in bare else _DTYPE_BY_NAME.get(bare)
    return ABSENT if name is None else DTYPES.index(name)


def bytes_per_element(dtype: str) -> int | None:
    """Return the bytes of one element of a data type as torch or Kineto names it; None for an unknown type."""
    index = dtype_index(dtype)
    return None if index == ABSENT else _BYTES[DTYPES[index]]


def size_in_bytes(elements: int, dtype: str) -> int:
    """Return the bytes of `elements` elements; ABSENT for an unknown type or more than any machine could hold."""
    width = bytes_per_element(dtype)
    return elements * width if width is not None and 0 <= elements < _MAX_ELEMENTS else ABSENT
