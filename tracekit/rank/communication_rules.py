"""Which kernels are communication, by their names, and of which kind: rules that a user can extend.

The rules for public communication libraries are tried in their order. Most match the function that a kernel's name
names (`function_of_kernel`), from its beginning. So a template argument or a parameter of a compute kernel, such as a
lambda in `at::native::...dispatch...`, matches none.

A kernel that multiplies matrices and communicates meanwhile counts as compute. So does one that moves tokens within a
device before or after their exchange (`permute`, `moe_combine`), and one that joins the partial results of an attention
(`flash_fwd_splitkv_combine_kernel`).

A user's rules may come from settings that somebody else wrote. Regular expressions that could take too long are refused
(`reason_to_refuse`).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tracekit.errors import UsageError
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT
from tracekit.model.names.collectives import kind_of_collective
from tracekit.rank.kernel_names import MOST_NAMES, function_of_kernel

COMPUTE = "compute"
"""The `kind` of a rule for kernels that only sound like communication."""

# The time to match a pattern grows faster than the length of a name. No real name is that long.
_LONGEST_FUNCTION = 1_000
_LONGEST_NAME = 16_384

_SHOWN = 100  # characters of a rule in messages

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
_BYTES = {dtype: int(re.sub(r"\D", "", dtype) or 8) // 8 for dtype in DTYPES}

_LAST = r"(?:.*::)?"  # before the function's own name: its namespaces
# Namespaces of the kernels between and within nodes, in DeepEP and what is made of it (UCCL, NCCL EP, and the
# dpsk::ep of DeepSeek's published profiles): https://github.com/deepseek-ai/DeepEP, csrc/kernels.
_NODES = r"(?:.*::)?(?:inter|intra)node(?:_ll)?::"
# deep_ep, hybrid_ep, nccl_ep, uccl's ep, dpsk::ep.
_EP = r"(?:.*::)?(?:\w+_)?(?:ep|hybridep)::(?:\w+::)*"

_LONGEST_PATTERN = 1_000
_MOST_CHOICES = 8
_HIGHEST_COUNT = 1_000
# An escaped character, a class of characters, the beginning of a group, a quantifier, or any other character.
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?[^:=!>()]*[:=!>)]?)?"
    r"|(?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d*\})[?+]?|.",
    re.DOTALL,
)
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x")  # spaces and comments in a pattern


@dataclass(frozen=True)
class CommunicationRule:
    """Kernels in whose name `pattern` is found (`re.search`, case sensitive) are communication of this kind.

    Attributes:
        kind: one of `KINDS`, or COMPUTE. None: as the name tells (`ncclKernel_AllReduce...`), "unknown" if it does not.
        source: the project whose kernels these are; "" for a rule of the user.
        in_function: the pattern is for the function that the name names, without template arguments and parameters
            (`function_of_kernel`), and matches it from its beginning (`re.match`).
        prepares: the kernels belong to the dispatch or combine that follows on their stream, and are of its kind.
    """

    pattern: str
    kind: str | None = None
    source: str = ""
    in_function: bool = False
    prepares: bool = False

    @property
    def text(self) -> str:
        """Return the rule as a user writes it: regex=kind."""
        return f"{self.pattern}={self.kind or 'unknown'}"

    def kind_of(self, name: str) -> str:
        """Return the kind of a kernel with this name, in which the pattern is found."""
        return self.kind if self.kind is not None else kind_of_collective(function_of_kernel(name))


RuleFinder = Callable[[str], CommunicationRule | None]


@lru_cache(8)
def rule_finder(rules: tuple[CommunicationRule, ...]) -> RuleFinder:
    """Return a function that finds the first of the rules for a kernel's name; None if none is for it."""
    compiled = [(re.compile(rule.pattern), rule) for rule in rules]

    @lru_cache(MOST_NAMES)
    def first_rule(name: str) -> CommunicationRule | None:
        function = function_of_kernel(name)[:_LONGEST_FUNCTION]
        for pattern, rule in compiled:
            found = pattern.match(function) if rule.in_function else pattern.search(name, 0, _LONGEST_NAME)
            if found:
                return rule
        return None

    return first_rule


def parse_rule(text: str) -> CommunicationRule:
    """Return the rule of `regex=kind`, such as `^my_ring=all_to_all`.

    Raises UsageError if there is no such kind, or if the pattern is no regular expression or could take too long.
    """
    pattern, separator, named = text.rpartition("=")
    kind = named.strip().replace("-", "_")
    kinds = (*(kind for kind in KINDS if kind != "unclassified"), COMPUTE)
    rule = f"rule {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'!r}"
    if not separator or not pattern:
        raise UsageError(f"{rule}: it is not of the form regex=kind", hint="such as '^my_ring=all_to_all'")
    if kind not in kinds:
        raise UsageError(f"{rule}: there is no kind {named[:_SHOWN]!r}", hint=f"there are {', '.join(kinds)}")
    if (slow := reason_to_refuse(pattern)) is not None:
        hint = "a rule is searched anywhere in the name, so a plain part of it is enough"
        raise UsageError(f"{rule}: it could take too long: {slow}", hint=hint)
    try:
        with warnings.catch_warnings(action="ignore"):  # of what other versions of Python will understand otherwise
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:  # groups in groups, and numbers of any size
        raise UsageError(f"{rule}: no regular expression: {error}", hint="put a backslash before ( [ * +") from None
    return CommunicationRule(pattern, kind)


@lru_cache(MOST_NAMES)
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


def _function(source: str, pattern: str, kind: str | None = None, *, prepares: bool = False) -> CommunicationRule:
    return CommunicationRule(pattern, kind, source, in_function=True, prepares=prepares)


def _signature(source: str, pattern: str, kind: str | None = None) -> CommunicationRule:
    return CommunicationRule(pattern, kind, source)


_NCCL = (
    # NCCL and RCCL of all generations, with symmetric kernels, and Meta's NCCLX: src/device/generate.py of NCCL,
    # src/device/common.h of RCCL, comms/ctran of torchcomms.
    _function("NCCL", _LAST + r"nccl\w*Kernel"),
    _function("RCCL", _LAST + r"rccl\w*Kernel"),
    _function("MSCCL", _LAST + r"msccl\w*Kernel"),
)


# Kernels that torch's compiler generates are named for the operators whose results they compute with, so a
# `triton_poi_fused_all_reduce_wait_tensor_0` does not communicate: torch/_inductor/codegen/triton.py.
_FUSED = (
    _function("TorchInductor", r"(?:triton|cpp|cutedsl|cutlass)_\w*fused_", COMPUTE),
    # GEMMs with communication: Triton-distributed, Flux, Iris, TransformerEngine, TensorRT-LLM.
    _function("GEMM or attention", r"cutlass::|(?i:.*(?:gemm|matmul|grouped_mm|flash_|fmha))", COMPUTE),
)


_EXPERT_PARALLEL = (
    # DeepEP. The layout, the notification and the epilogues are parts of an exchange: they exist only for it.
    _function("DeepEP", _NODES + r"(?:\w+::)*\w*dispatch", "dispatch"),
    _function("DeepEP", _NODES + r"(?:\w+::)*\w*combine", "combine"),
    _function("DeepEP", _NODES + r"barrier", "barrier"),
    _function("DeepEP", _NODES, "unknown", prepares=True),
    _function("DeepEP", _LAST + r"(?:(?:cached_)?notify_dispatch|get_dispatch_layout$)", "dispatch"),
    _function("DeepEP", _LAST + r"(?:cached_)?notify_combine", "combine"),
    _function("DeepEP", _LAST + r"(?:cached_notify|clean_low_latency_buffer)(?:_pcie)?$", "unknown", prepares=True),
    # DeepEP V2 (deep_ep::elastic), its branch hybrid-ep, NCCL EP (contrib/nccl_ep).
    _function("expert parallel", _EP + r"(?:\w*_)?(?<!prob_)dispatch", "dispatch"),
    _function("expert parallel", _EP + r"(?:\w*_)?(?<!prob_)combine", "combine"),
    _function("expert parallel", _EP + r"scan$", "dispatch"),
    _function("expert parallel", _EP + r"(?:barrier_impl|device_sync_kernel|rdma_sync_kernel)$", "barrier"),
    _function("expert parallel", _EP + r"(?:pp_send|pp_recv|engram_fetch)\w*_impl$"),
    _function("NCCL EP", r"nccl_ep_jit_\w*(?:dispatch|scan)", "dispatch"),
    _function("NCCL EP", r"nccl_ep_jit_\w*combine", "combine"),
    # https://github.com/perplexityai/pplx-kernels, csrc/all_to_all; pplx-garden, p2p-all-to-all.
    _function("PPLX", r"(?:pplx::)?dispatchKernel$|.*a2a_dispatch_(?:send|recv)_kernel$", "dispatch"),
    _function("PPLX", r"(?:pplx::)?combineKernel$|.*a2a_combine_(?:send|recv)_kernel$", "combine"),
    # https://github.com/ROCm/mori, src/ops/dispatch_combine.
    _function("MoRI", _LAST + r"(?:mori_)?(?:EpDispatch[A-Z]|ep_dispatch_)", "dispatch"),
    _function("MoRI", _LAST + r"(?:mori_)?(?:EpCombine[A-Z]|ep_combine_)", "combine"),
    # https://github.com/NVIDIA/TensorRT-LLM, communicationKernels/moeAlltoAllKernels.cu; in FlashInfer as well.
    _function("TensorRT-LLM", _LAST + r"moeA2A(?:Prepare)?Dispatch", "dispatch"),
    _function("TensorRT-LLM", _LAST + r"moeA2A(?:Prepare)?Combine", "combine"),
    # https://github.com/ByteDance-Seed/Triton-distributed, kernels of expert parallelism.
    _function("Triton-distributed", r"(?:tile_)?kernel_\w*dispatch_(?:token|intra_node|send_reqs)", "dispatch"),
    _function("Triton-distributed", r"(?:tile_)?kernel_\w*combine_(?:token|intra_node)", "combine"),
    _function("Triton-distributed", r"dispatch_(?:postprocess_)?kernel_v\d", "dispatch"),
    _function("Triton-distributed", r"combine_kernel_v\d", "combine"),
)


_ONE_SIDED = (
    # https://github.com/NVIDIA/nvshmem: src/host/stream/coll; rocSHMEM and MoRI's SHMEM are alike.
    _function("NVSHMEM", _LAST + r"fcollect_on_stream_kernel", "all_gather"),
    _function("NVSHMEM", _LAST + r"rdxn_on_stream_kernel", "all_reduce"),
    _function("NVSHMEM", _LAST + r"(?:barrier|sync)_on_stream_kernel", "barrier"),
    _function("NVSHMEM", _LAST + r"(?:alltoall|broadcast|reducescatter)_on_stream_kernel"),
    _function("NVSHMEM", _LAST + r"_?(?:nv|roc|mx|mori_)?shmem[xi]?_"),
    # torch's symmetric memory, with its kernels for NVSHMEM, NCCL and NIXL: torch/csrc/distributed/c10d/symm_mem.
    # checkForNaN looks at a collective's input: torch/csrc/distributed/c10d/NanCheck.cu.
    _function("torch", r"c10d::(?!checkForNaN)"),
    _function("torch", r".*(?:symm_mem|symmetric_memory)"),
    _function("torch", _LAST + r"multimem_one_shot_reduce", "reduce"),
    # https://github.com/NVIDIA/TransformerEngine, comm_gemm_overlap/userbuffers; TensorRT-LLM has a copy.
    _function("userbuffers", _LAST + r"userbuffers_\w*_rs(?:_|$)", "reduce_scatter"),
    _function("userbuffers", _LAST + r"userbuffers_\w*_ag(?:_|$)", "all_gather"),
    _function("userbuffers", _LAST + r"userbuffers_fp16_sum_inplace", "all_reduce"),
    _function("userbuffers", _LAST + r"kuserbuffers_(?:push|pull)"),
)


_CUSTOM = (
    # vLLM, SGLang, FlashInfer and aiter: custom_all_reduce.cuh. Part of a reduction in aiter, reduce_scatter_...
    _function("custom all-reduce", _LAST + r"reduce_scatter_cross_device", "reduce_scatter"),
    _function("custom all-reduce", _LAST + r"cross_device_reduce", "all_reduce"),
    # FlashInfer over PCIe: include/flashinfer/comm/pcie_ipc_all_reduce.cuh.
    _function("FlashInfer", r".*pcie_ipc::|" + _LAST + r"ipc_\w*(?:rsag|remote_push)\w*_kernel", "all_reduce"),
    # https://github.com/InternLM/lmdeploy, src/turbomind/comm/cuda_ipc.
    _function("TurboMind", r"turbomind::comm::"),
    # Triton-distributed, kernels/nvidia/common_ops.py.
    _function("Triton-distributed", r"(?:.*_)?barrier_all(?:_|$)", "barrier"),
    _function("Triton-distributed", r"p2p_(?:put|copy|set|wait)_", "unknown"),
)


_BY_PARAMETERS = (
    # What a kernel gets to communicate with: MSCCL++ (also in SGLang), the device interfaces of NCCL, NVSHMEM, NIXL
    # and UCX.
    _signature("MSCCL++", r"\bmscclpp::"),
    _signature("device interface", r"\bnccl(?:DevComm|Window)|\bnvshmemi?_team_|\bnixlGpu|\bucp_device_"),
)


# Collectives by any other library are mostly named for what they do: allreduceNvls of MSCCL++, oneShotAllReduceKernel
# and allreduce_fusion_kernel_oneshot_lamport of TensorRT-LLM, two_shot_all_reduce_kernel of torch and FBGEMM,
# allreduce_prototype_twoshot of quickreduce, OneShotAllGatherSdmaKernel of MoRI, allgather_lastdim of aiter.
_BY_COLLECTIVE = (
    _function("collective's name", r"(?i).*all_?reduce"),
    _function("collective's name", r"(?i).*all_?gather"),
    _function("collective's name", r"(?i).*reduce_?scatter"),
    _function("collective's name", r"(?i).*(?:all_?to_?all|all2all)|(?:.*(?:_|::))?a2a(?:_|$)", "all_to_all"),
    # What is left of NCCL, RCCL, HCCL and oneCCL.
    _function("NCCL", r"(?i).*(?:[nrh]|one)ccl(?!_ep)"),
)


DEFAULT_RULES: tuple[CommunicationRule, ...] = (
    *_NCCL,
    *_FUSED,
    *_EXPERT_PARALLEL,
    *_ONE_SIDED,
    *_CUSTOM,
    *_BY_COLLECTIVE,
    *_BY_PARAMETERS,
)


def reason_to_refuse(pattern: str) -> str | None:
    """Return why the time to match a pattern could grow exponentially with the length of a name; None if it cannot.

    Python tries every way in which the parts of a pattern can share a name. There are too many where a part that can
    match in several ways is repeated, as in `(a+)+`, or where many such parts follow each other.
    """
    if len(pattern) > _LONGEST_PATTERN:
        return f"it is longer than {_LONGEST_PATTERN:,} characters"
    choices = 0
    signs: list[set[str]] = [set()]  # of each group that is open: "|" and the others that let it match in several ways
    closed: set[str] | None = None  # the same of the group before the part, if there is one
    for part in _PART.findall(pattern):
        before, closed = closed, None
        if _VERBOSE.match(part):
            return "it has the flag x"
        if part.startswith("("):
            signs += [set()] * (not part.endswith(")"))  # which ends flags, as in (?i)
        elif part == ")" and len(signs) > 1:
            closed = signs.pop()
            signs[-1] |= {part} if closed else set()
        elif part == "|":
            choices += part not in signs[-1]  # one of each group
            signs[-1].add(part)
        elif (bounds := _bounds(part)) is not None:
            least, most = bounds
            if before and most > 1:
                return "it repeats a group in which something is repeated, optional or one of several"
            if _HIGHEST_COUNT < most < math.inf or least > _HIGHEST_COUNT:
                return f"it repeats something more than {_HIGHEST_COUNT:,} times"
            choices += least != most
            signs[-1] |= {part} if least != most or before is not None else set()
    return f"it has more than {_MOST_CHOICES} parts that can match in several ways" if choices > _MOST_CHOICES else None


def _bounds(part: str) -> tuple[float, float] | None:
    """Return how often at least and at most a quantifier lets the part before it match; None if it is no quantifier."""
    if (sign := part[0]) in "*+?":
        return {"*": (0, math.inf), "+": (1, math.inf), "?": (0, 1)}[sign]
    if sign != "{" or len(part) == 1:
        return None
    least, comma, most = part.rstrip("?+")[1:-1].partition(",")
    return int(least or 0), int(most) if most else math.inf if comma else int(least)
