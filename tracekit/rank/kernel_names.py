"""What a kernel's name says: its function, whose library computes, and how it multiplies.

How a kernel is known to communicate, `communication_rules.py` lists. The function is the name without return type,
template arguments and parameters:

    void dpsk::ep::internode::dispatch<false, 8>(int4*, float*)   dpsk::ep::internode::dispatch
    void (anonymous namespace)::one_shot_all_reduce_kernel<float> one_shot_all_reduce_kernel
    _ZN2at6native13reduce_kernelILi512EEEvT_                      at::native::reduce_kernel
    ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)       ncclDevKernel_Generic
    triton_poi_fused_add_0                                        triton_poi_fused_add_0

Template arguments and parameters name other functions and types, so that a word in them says nothing of the kernel.
Kineto demangles names (libkineto/src/Demangle.cpp), but for those that are too long or that the library does not know.
"""

from __future__ import annotations

import re
from functools import lru_cache

MOST_NAMES = 4096
"""How many names a cache keeps: a trace repeats few names, but a damaged one may have any number."""

COMPUTING_LIBRARIES = ("at::native::", "at_cuda_detail::", "cub::", "thrust::", "rocprim::", "cudnn::")
"""Functions that begin so compute, even inside an operator that communicates."""

TF32_KERNEL = re.compile(r"tf32|s1688(?:gemm|fprop|dgrad|wgrad)")
"""In the names of kernels of CUDA libraries that multiply float32 on tensor cores."""

SCALAR_KERNEL = re.compile(r"sgemm|_simt_|f32f32_f32f32_f32")
"""In the names of those that multiply float32 without tensor cores."""

_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\(unnamed\)|\{anonymous\})::")
_FUNCTION = re.compile(r"(?:[\w:*&]+ )*([^\s<(]+)")
_RETURN_TYPE_WITH_ARGUMENTS = re.compile(r"(?:typename |const |static )*(?:std::|decltype)[\w:]*[<(]")
_OPENING, _CLOSING = "<({[", ">)}]"
_LENGTH = re.compile(r"\d{1,4}")


@lru_cache(MOST_NAMES)
def function_of_kernel(name: str) -> str:
    """Return the qualified name of the function; the whole name if it is none of C++."""
    if name.startswith("_Z"):
        return _demangled_function(name) or name
    name = _ANONYMOUS.sub("", name)
    if _RETURN_TYPE_WITH_ARGUMENTS.match(name):
        name = _without_arguments(name)
    match = _FUNCTION.match(name)
    return match[1] if match is not None else name


def _without_arguments(name: str) -> str:
    """Return the name without what stands in brackets. `>` closes only what `<` opened: `(8) > (0)` is a condition."""
    kept, opened = [], []
    for character in name:
        if character in _OPENING:
            opened.append(character)
        elif opened and character == _CLOSING[_OPENING.index(opened[-1])]:
            opened.pop()
        elif not opened:
            kept.append(character)
    return "".join(kept)


def _demangled_function(name: str) -> str:
    """Return the nested name of a mangled one (Itanium C++ ABI: `_Z`, perhaps `N`, then names after their lengths)."""
    position = 3 if name.startswith("_ZN") else 2
    parts = []
    while (length := _LENGTH.match(name, position)) is not None:
        begin = length.end()
        position = begin + int(length[0])
        part = name[begin:position]
        if not part.startswith("_GLOBAL__N"):  # the anonymous namespace
            parts.append(part)
    return "::".join(parts)
