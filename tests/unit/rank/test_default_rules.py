"""Names of kernels of public libraries, as profilers record them, and what each counts as."""

from __future__ import annotations

import re

import pytest

from tracekit.rank.communication_rules import COMPUTE, DEFAULT_RULES, rule_finder

RULE_FOR = rule_finder(DEFAULT_RULES)

COMMUNICATION = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": "all_reduce",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter",
    "ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs const*)": "all_gather",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": "unknown",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_recv",
    "ncclKernelAllGatherCtranRing(int*, ctran::allgather::KernelArgs)": "all_gather",
    "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)": "unknown",
    "mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)": "unknown",
    # DeepEP, its V2, hybrid-ep, UCCL, NCCL EP; dpsk::ep as in DeepSeek's published profile.
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)": "dispatch",
    "void deep_ep::internode_ll::combine<true, 7168, 9>(void*, void*)": "combine",
    "void deep_ep::intranode::barrier<8>(int**, int)": "barrier",
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*)": "combine",
    "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*, int*)": "dispatch",
    "void deep_ep::pcie::notify_dispatch_pcie<false, 8>(int const*)": "dispatch",
    "deep_ep::internode_ll::clean_low_latency_buffer(int*, int)": "unknown",
    "void deep_ep::elastic::hybrid_combine_impl<true, 8>(void*)": "combine",
    "void deep_ep::elastic::dispatch_copy_epilogue_impl<8>(void*)": "dispatch",
    "void deep_ep::elastic::pp_send_impl<32>(void*)": "send",
    "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)": "dispatch",
    "void dpsk::ep::internode::cached_notify<false>(int, int)": "unknown",
    "void dpsk::ep::internode::combine_ll<7168>(void*)": "combine",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*)": "dispatch",
    "void hybrid_ep::dispatch_kernel<unsigned short, 4>(hybrid_ep::dispatch_kernel_param_t<int>)": "dispatch",
    "void hybrid_ep::combine_kernel<4, 8>(hybrid_ep::combine_kernel_param_t)": "combine",
    "void hybrid_ep::device_sync_kernel(unsigned int*, unsigned int*)": "barrier",
    "void uccl::internode_ll::dispatch<true, 7168>(void*)": "dispatch",
    "void nccl_ep::internode_ll::combine<7168>(void*)": "combine",
    "nccl_ep_jit_ht_dispatch_kernel": "dispatch",
    "void intranode::notify_dispatch<8>(int const*)": "dispatch",
    "void cached_notify_combine<8>(void**, int*)": "combine",
    "void dpsk::ep::cuda::cached_notify(int, int)": "unknown",
    "void hybrid_ep::scan<512>(bool const*)": "dispatch",
    "nccl_ep_jit_ht_combine_kernel": "combine",
    # PPLX, MoRI, TensorRT-LLM, Triton-distributed.
    "void (anonymous namespace)::dispatchKernel<10, false>(int*, int*)": "dispatch",
    "void (anonymous namespace)::combineKernel<10, __nv_bfloat16>(__nv_bfloat16*)": "combine",
    "void a2a_dispatch_send_kernel<16>(unsigned char*)": "dispatch",
    "void a2a_combine_recv_kernel<16>(unsigned char*)": "combine",
    "void mori::moe::EpDispatchInterNodeV1Kernel<float>(mori::moe::EpDispatchCombineArgs<float>)": "dispatch",
    "EpCombineIntraNodeKernel_bf16": "combine",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<Policy, 8>(Ptrs)": "dispatch",
    "void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<__nv_bfloat16>(Ptrs)": "combine",
    "void flashinfer::trtllm_alltoall::moeAllToAllKernel(MoeEpWorldInfo)": "all_to_all",
    "kernel_dispatch_token_intra_node": "dispatch",
    "tile_kernel_gather_combine_token_intra_node": "combine",
    "dispatch_kernel_v2": "dispatch",
    "combine_kernel_v2": "combine",
    # NVSHMEM, symmetric memory, userbuffers.
    "void barrier_on_stream_kernel_threadgroup<2>(int, int)": "barrier",
    "void alltoall_on_stream_kernel<char>(int, char*)": "all_to_all",
    "void fcollect_on_stream_kernel<char>(int, char*)": "all_gather",
    "void rdxn_on_stream_kernel<float, (rdxn_ops)4>(int, float*)": "all_reduce",
    "nvshmemi_signal_op_kernel(unsigned long*, unsigned long, int, int)": "unknown",
    "c10d::nvshmem_extension::allToAllV(void*, void*, long*, unsigned long, int, int)": "all_to_all",
    "c10d::nvshmem_extension::exchangeSplitAndOffset(long*, int, int)": "unknown",
    "void c10d::symmetric_memory::barrier_kernel(unsigned int**, int)": "barrier",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": "all_reduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 8>(float**)": "all_reduce",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*)": "all_gather",
    "void (anonymous namespace)::multimem_one_shot_reduce_kernel<float, 16>(float*)": "reduce",
    "_symm_mem_copy_kernel": "unknown",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)": "reduce_scatter",
    "void userbuffers_fp16_sum_inplace_gpu_mc_ag<4>(int, int)": "all_gather",
    "void userbuffers_fp16_sum_inplace_gpu_rw<8>(int, int)": "all_reduce",
    "kuserbuffers_pushsendrecv(int, int, int, int*)": "send_recv",
    # Custom all-reduces: vLLM, SGLang, aiter, quickreduce, TensorRT-LLM, FlashInfer, MSCCL++, TurboMind, MoRI.
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)": "all_reduce",
    "void sglang::cross_device_reduce_2stage<half, 4>(sglang::RankData*)": "all_reduce",
    "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*)": "reduce_scatter",
    "void aiter::allgather_lastdim<float, 8>(aiter::RankData*)": "all_gather",
    "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<half>, half>(half*)": "all_reduce",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8, true>(AllReduceParams)": "all_reduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<3>(Params)": "all_reduce",
    "void moefinalize_allreduce_fusion_kernel_oneshot_lamport<1>(Params)": "all_reduce",
    "void sglang::allreduce_1shotLL_1node<half>(mscclpp::MemoryChannelDeviceHandle*, half*)": "all_reduce",
    "void mscclpp::executionKernel<half, mscclpp::LL16Packet>(int, half*)": "unknown",
    "void mscclpp::ep::kernelDispatch<8>(mscclpp::DeviceHandle<mscclpp::MemoryChannel>*)": "dispatch",
    "void turbomind::comm::Allgather_Simple_Pull<int>(int*)": "all_gather",
    "void turbomind::comm::Broadcast_NVLS_V2<int>(int const*)": "broadcast",
    "void mori::collective::OneShotAll2allSdmaKernel<float>(int, int)": "all_to_all",
    "allreduce_one_shot_push_intra_node_kernel": "all_reduce",
    "barrier_all_intra_node_kernel": "barrier",
    "kernel_pre_attn_qkv_pack_a2a": "all_to_all",
    "p2p_copy_remote_to_local_kernel": "unknown",
    "void flashinfer::comm::pcie_ipc::ipc_rsag_push_param_kernel<half>(half*)": "all_reduce",
    "persistent_reduce_scatter_two_shot": "reduce_scatter",
    "my_nccl_proxy_kernel": "unknown",
    "void my_exchange(ncclDevComm, ncclWindow_vidmem*)": "unknown",
    "_ZN7deep_ep9internode8dispatchILb0ELi8EEEvP4int4": "dispatch",
}  # fmt: skip

# What sounds like communication, and is not.
COMPUTES = [
    # Attention that joins partial results, merging of splits.
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)",
    "void flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>>(Params)",
    "void smxx::decode::flash_fwd_mla_combine_kernel<cutlass::bfloat16_t, 512>(Params)",
    "kernel_inter_rank_gqa_fwd_batch_decode_combine_kv",
    "void flashinfer::PersistentVariableLengthMergeStatesKernel<8>(int*)",
    # Dispatch as in choosing a kernel.
    "void at::native::elementwise_kernel<128, 4, at::native::dispatch_copy(at::Iterator&)::{lambda()#1}>(int)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::DispatchKernelTmaWarpSpecialized<int>>(int)",
    "void cub::CUB_200200_NS::DeviceReduceKernel<cub::DispatchReduce<int>::Policy>(int*)",
    "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::DispatchAgent<int>>(int)",
    # Tokens moved within a device.
    "void moe_combine<__nv_bfloat16>(__nv_bfloat16*)",
    "void vllm::moe::moe_permute_kernel<__nv_bfloat16>(int*)",
    "void hybrid_ep::permute_kernel<unsigned short>(int*)",
    "void hybrid_ep::unpermute_kernel<unsigned short>(int*)",
    "void nccl_ep::hybridep::dense_to_sparse_prob_combine_kernel<8>(float*)",
    "_unpermute_kernel",
    "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<int>>(int)",
    # Reductions, gathers and scatters of torch.
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
    "void at::native::vectorized_gather_kernel<16, long>(char*)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "void splitKreduce_kernel<32, 16, int, float>(float*)",
    "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)",
    # Named by torch's compiler for operators whose results they use.
    "triton_poi_fused_all_reduce_wait_tensor_view_0",
    "triton_red_fused__to_copy_all_gather_into_tensor_mean_3",
    "triton_poi_fused_symm_mem_one_shot_all_reduce_1",
    # Matrix products with communication.
    "kernel_fused_gemm_allreduce",
    "mega_kernel_dispatch_token_moe_grouped_gemm",
    "persistent_gemm_all_scatter",
    "void cutlass::device_kernel<bytedance::flux::GemmReduceScatter<nvshmem_team_t>>(int)",
    # What sounds like a namespace of expert parallelism.
    "void deep::step::dispatcher<int>(int)",
    "void c10d::checkForNaN<float>(float*, unsigned long)",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SN",
]


@pytest.mark.parametrize(("name", "kind"), COMMUNICATION.items())
def test_kernels_of_communication(name: str, kind: str) -> None:
    rule = RULE_FOR(name)
    assert rule is not None
    assert rule.kind_of(name) == kind


@pytest.mark.parametrize("name", COMPUTES)
def test_kernels_that_only_sound_like_communication(name: str) -> None:
    rule = RULE_FOR(name)
    assert rule is None or rule.kind_of(name) == COMPUTE


def test_every_rule_has_a_source_and_a_kernel_above() -> None:
    used = {RULE_FOR(name) for name in [*COMMUNICATION, *COMPUTES]}
    assert [rule for rule in DEFAULT_RULES if not rule.source or rule not in used] == []


# How Holistic Trace Analysis (hta/common/types.py) and TraceLens (TraceLens/util.py) find communication.
HTA = re.compile(r"nccl.*|hip|hccl|.*ncclKernel.*")
TRACELENS = re.compile(r"rccl|nccl|cross_device_reduce", re.IGNORECASE)


@pytest.mark.parametrize("name", [name for name in COMMUNICATION if not (HTA.match(name) and TRACELENS.search(name))])
def test_what_other_tools_call_compute_is_communication(name: str) -> None:
    rule = RULE_FOR(name)
    assert rule is not None
    assert rule.kind_of(name) != COMPUTE


def test_other_tools_miss_most_of_these_libraries() -> None:
    """So that the list above stays what its name says."""
    missed = [name for name in COMMUNICATION if not HTA.match(name)]
    assert len(missed) > len(COMMUNICATION) / 2
    assert len([name for name in missed if not TRACELENS.search(name)]) > len(COMMUNICATION) / 2
