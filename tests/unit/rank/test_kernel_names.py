"""The function that a kernel's name names, in all the ways in which compilers and profilers write it."""

from __future__ import annotations

import pytest

from tracekit.rank.kernel_names import function_of_kernel


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"),
        ("void dpsk::ep::internode::dispatch<false, 8>(int4*, float*)", "dpsk::ep::internode::dispatch"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*)", "multimem_all_reduce_kernel"),
        ("void at::native::(anonymous namespace)::cat_kernel<int>(int*)", "at::native::cat_kernel"),
        ("void cutlass::device_kernel<moe::dispatch::Gemm>(moe::dispatch::Gemm::Params)", "cutlass::device_kernel"),
        ("cuda::get_fused_mapping(long const*, int*)", "cuda::get_fused_mapping"),
        (
            "std::enable_if<(((8)>(0)))&&convert<float>::exists, void>::type vllm::fused_add_rms_norm_kernel<8>(int)",
            "vllm::fused_add_rms_norm_kernel",
        ),
        ("_ZN7deep_ep9internode8dispatchILb0ELi8EEEvP4int4", "deep_ep::internode::dispatch"),
        ("_ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_17e44f7d6kernelIfEEvT_", "at::native::kernel"),
        ("_Z6kernelPf", "kernel"),
        ("_Zsomething", "_Zsomething"),
        ("", ""),
        ("<<<", "<<<"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
    ],
)
def test_function_of_kernel(name: str, function: str) -> None:
    assert function_of_kernel(name) == function
