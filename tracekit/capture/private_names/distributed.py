"""Lists the private names that recordings of distributed jobs use: of groups, DDP and FSDP."""

from __future__ import annotations

from tracekit.capture.private_names.entry import entries

_COLLECTIVES = "torch._C._distributed_c10d"
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
_FSDP1_RUNTIME = "torch.distributed.fsdp._runtime_utils"
_FSDP2 = "torch.distributed.fsdp._fully_shard"

__all__ = ["DDP", "FSDP", "GROUPS"]

GROUPS = (
    *entries(
        "torch.distributed.distributed_c10d",
        "_world",
        "_World.pg_map",
        "_World.pg_names",
        use="lists the process groups",
        fallback="process groups are missing, and all tables by group",
    ),
    *entries(
        "torch.distributed.distributed_c10d",
        "_get_default_store",
        use="shares the run's name and measures clocks",
        fallback="each rank writes a run of its own",
    ),
    *entries(
        "torch.distributed.distributed_c10d",
        "_get_default_group",
        use="finds the group of a pipeline",
        fallback="pipelines are not described",
    ),
    *entries(
        _COLLECTIVES,
        "_dump_fr_trace_json",
        use="reads the collectives of CPUs and of other devices from the flight recorder",
        fallback="collectives on CPUs have no entries of the flight recorder",
    ),
    *entries(
        _COLLECTIVES,
        "_dump_nccl_trace_json",
        use="reads the collectives of NCCL from the flight recorder",
        fallback="collectives on GPUs have no entries of the flight recorder",
        needs="NCCL",
    ),
    *entries(
        _COLLECTIVES,
        "ProcessGroup._allgather_base",
        "ProcessGroup._reduce_scatter_base",
        use="sees collectives written by hand",
        fallback="the newer names of these collectives are used",
    ),
    *entries(
        _COLLECTIVES,
        "ProcessGroup._start_coalescing",
        "ProcessGroup._end_coalescing",
        use="marks the messages of one batch",
        fallback="messages of a batch have no span",
    ),
    *entries(
        _COLLECTIVES,
        "Work._source_rank",
        use="finds the sender of a receive from any source",
        fallback="receives from any source are not matched",
    ),
    *entries(
        "torch.nn.modules._functions",
        "",
        use="tells synchronised batch norm from collectives written by hand",
        fallback="its collectives count as written by hand",
    ),
    *entries(
        "torch.distributed._composable",
        "",
        use="tells torch's wrappers from collectives written by hand",
        fallback="collectives of these wrappers count as written by hand",
    ),
)

DDP = (
    *entries(
        "torch.distributed",
        "_register_comm_hook",
        use="puts spans around communication hooks of DDP",
        fallback="the time in communication hooks is not marked",
    ),
    *entries(
        "torch.distributed",
        "_DEFAULT_FIRST_BUCKET_BYTES",
        "_compute_bucket_assignment_by_size",
        use="maps parameters to DDP's buckets before DDP rebuilds them",
        fallback="buckets of the first step have no parameters",
    ),
    *entries(
        "torch.nn.parallel.distributed",
        "DistributedDataParallel._comm_hooks",
        use="finds communication hooks that were registered before the probe",
        fallback="buckets of these hooks are not marked",
    ),
    *entries(
        "torch.nn.parallel.distributed",
        "DistributedDataParallel._get_ddp_logging_data",
        use="reads DDP's buckets",
        fallback="DDP's modules and buckets are missing",
    ),
)

FSDP = (
    *entries(
        _FSDP1,
        "FullyShardedDataParallel._handle",
        use="tells the parameters of FSDP1's modules apart",
        fallback="FSDP1's modules are missing",
    ),
    *entries(
        _FSDP1,
        "FullyShardedDataParallel._fsdp_wrapped_module",
        use="leaves FSDP1's wrapper out of names of modules",
        fallback="names of modules contain the wrapper's",
    ),
    *entries(
        _FSDP1,
        "FullyShardedDataParallel._inter_node_pg",
        set_by="torch.distributed.fsdp._init_utils._init_process_group_state_for_hybrid_shard",
        use="finds the group over which FSDP1 replicates",
        fallback="hybrid sharding by FSDP1 is shown as plain sharding",
    ),
    *entries(
        _FSDP1,
        "_pre_forward_unshard",
        use="puts spans around FSDP1's communication",
        fallback="FSDP1's communication is not named by module",
    ),
    *entries(
        _FSDP1_RUNTIME,
        "_unshard",
        "_reduce_grad",
        "_reduce_grad_no_shard",
        "_pre_backward_hook",
        use="puts spans around FSDP1's communication",
        fallback="FSDP1's communication is not named by module",
    ),
    *entries(
        "torch.distributed.fsdp._flat_param",
        "FlatParamHandle._training_state",
        use="tells forward from backward in FSDP1",
        fallback="FSDP1's unshards are not named by module",
    ),
    *entries(
        "torch.distributed.fsdp._flat_param",
        "FlatParameter._unpadded_unsharded_size",
        use="reads the size of FSDP1's modules",
        fallback="FSDP1's modules are missing",
    ),
    *entries(
        "torch.distributed.fsdp",
        "FSDPModule._get_fsdp_state",
        use="finds the groups and the modules of FSDP2",
        fallback="modules of tensor parallelism that FSDP2 shards too are missing",
    ),
    *entries(
        f"{_FSDP2}._fsdp_state",
        "FSDPState._fsdp_param_group",
        instead=f"{_FSDP2}._fsdp_state.FSDPState._fsdp_param_groups",
        use="finds the parameters that FSDP2 shards as one",
        fallback="modules of tensor parallelism that FSDP2 shards too are missing",
    ),
    *entries(
        f"{_FSDP2}._fsdp_state",
        "FSDPState._fsdp_param_groups",
        instead=f"{_FSDP2}._fsdp_state.FSDPState._fsdp_param_group",
        use="finds the parameters that FSDP2 shards as one",
        fallback="modules of tensor parallelism that FSDP2 shards too are missing",
    ),
    *entries(
        f"{_FSDP2}._fsdp_param_group",
        "FSDPParamGroup.unshard",
        "FSDPParamGroup._module_fqn",
        use="notes which modules FSDP2 unshards",
        fallback="FSDP2's modules are missing",
    ),
    *entries(
        f"{_FSDP2}._fsdp_state",
        "FSDPState._states_to_forward_prefetch",
        "FSDPState._states_to_backward_prefetch",
        use="reads how many modules FSDP2 prefetches explicitly",
        fallback="the configuration says that none are",
    ),
    *entries(
        _FSDP1,
        "FullyShardedDataParallel._use_orig_params",
        set_by="torch.distributed.fsdp._init_utils._init_core_state",
        use="reads the configuration of FSDP1",
        fallback="the configuration of FSDP1 is missing",
    ),
    *entries(
        _FSDP1,
        "FullyShardedDataParallel._comm_hook",
        set_by="torch.distributed.fsdp._init_utils._init_runtime_state",
        use="names the communication hook of FSDP1",
        fallback="the configuration of FSDP1 lacks its communication hook",
    ),
    *entries(
        f"{_FSDP2}._fsdp_param",
        "FSDPParam._orig_size",
        use="reads the size of FSDP2's modules",
        fallback="FSDP2's modules are missing",
    ),
)
