"""The rules for kernels of public communication libraries, in the order in which they are tried.

Most match the function that a kernel's name names (`function_of_kernel`), from its beginning. So a template argument or
a parameter of a compute kernel, such as a lambda in `at::native::...dispatch...`, matches none.

A kernel that multiplies matrices and communicates meanwhile counts as compute. So does one that moves tokens within a
device before or after their exchange (`permute`, `moe_combine`), and one that joins the partial results of an attention
(`flash_fwd_splitkv_combine_kernel`).
"""

from __future__ import annotations

from tracekit.analysis.events.communication_rules import COMPUTE, CommunicationRule

__all__ = ["DEFAULT_RULES"]

_LAST = r"(?:.*::)?"  # before the function's own name: its namespaces
# Namespaces of the kernels between and within nodes, in DeepEP and what is made of it (UCCL, NCCL EP, and the
# dpsk::ep of DeepSeek's published profiles): https://github.com/deepseek-ai/DeepEP, csrc/kernels.
_NODES = r"(?:.*::)?(?:inter|intra)node(?:_ll)?::"
# deep_ep, hybrid_ep, nccl_ep, uccl's ep, dpsk::ep.
_EP = r"(?:.*::)?(?:\w+_)?(?:ep|hybridep)::(?:\w+::)*"


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
