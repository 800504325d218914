"""Every private name of torch that tracekit reads, calls, patches or recognises.

torch may rename or remove these without notice; the docstring of the package says what to do then.
`tests/unit/capture/private_names/test_table.py` fails if the code uses one that is not listed, or if the installed
torch lacks one. `tracekit doctor` shows what is lost without it.
"""

from __future__ import annotations

from tracekit.capture.private_names.entry import PrivateName, entries
from tracekit.capture.rpc.private_names import REMOTE_CALLS

_COLLECTIVES = "torch._C._distributed_c10d"
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
_FSDP1_RUNTIME = "torch.distributed.fsdp._runtime_utils"
_FSDP2 = "torch.distributed.fsdp._fully_shard"
_SCHEDULES = "torch.distributed.pipelining.schedules"
_RPC = "torch.distributed.rpc"

PROFILER = (
    *entries(
        "torch._C._profiler",
        "_RecordFunctionFast",
        use="opens the spans of all observers and steps",
        fallback="nothing can be recorded",
    ),
    *entries(
        "torch._C._profiler",
        "_ExperimentalConfig",
        use="has torch record the threads of RPC, and build no list of events in Python",
        fallback="nothing can be recorded",
    ),
    *entries(
        "torch.autograd",
        "_profiler_enabled",
        "profiler._is_profiler_enabled",
        use="sees that another profiler runs",
        fallback="nothing can be recorded",
    ),
    *entries(
        "torch.autograd.profiler",
        "profile._prepare_trace",
        "profile._start_trace",
        use="ends the recording before another profiler starts",
        fallback="nothing can be recorded",
    ),
    *entries(
        "torch._C._autograd",
        "_enable_record_function",
        use="stops the recording in a forked child",
        fallback="forked children collect events in memory",
    ),
    *entries(
        "torch._C",
        "_current_graph_task_id",
        use="tells whether a backward pass runs on this thread",
        fallback="backward passes, forwards and purposes of collectives have no spans",
    ),
    *entries(
        "torch._C",
        "_len_torch_dispatch_stack",
        use="measures the profiler's overhead only where no dispatch mode is active",
        fallback="the profiler's overhead is unknown",
    ),
)

COMPILER = (
    *entries(
        "torch._C._dynamo.eval_frame",
        "_FrameAction",
        "_FrameExecStrategy",
        "set_code_exec_strategy",
        use="has torch.compile skip the functions of the capture",
        fallback="torch.compile compiles functions of the capture",
    ),
    *entries(
        "torch._dynamo.eval_frame",
        "OptimizedModule",
        "OptimizedModule._orig_mod",
        use="finds compiled modules and the names of the modules inside",
        fallback="hooks may have compiled modules compiled again; their names have `_orig_mod` in them",
    ),
    *entries(
        "torch._dynamo.config",
        "skip_nnmodule_hook_guards",
        use="tells whether a hook has a module compiled again",
        fallback="hooks may have compiled modules compiled again",
    ),
    *entries(
        "torch.nn.modules.module",
        "Module._compiled_call_impl",
        use="finds modules compiled in place",
        fallback="hooks may have compiled modules compiled again",
    ),
    *entries(
        "torch._dynamo.eval_frame",
        "OptimizeContext",
        "OptimizeContext._dynamic",
        use="reads the options of torch.compile",
        fallback="the configuration lacks what is compiled",
    ),
    *entries(
        "torch._dynamo.convert_frame",
        "ConvertFrame._torchdynamo_orig_backend",
        use="names the backend of torch.compile",
        fallback="the configuration names a wrapper in its place",
    ),
    *entries(
        "torch._dynamo.convert_frame",
        "output_codes",
        use="names the functions that were compiled",
        fallback="the configuration lacks compiled functions",
    ),
    *entries(
        "torch._dynamo.utils",
        "counters",
        use="counts compiled graphs and graph breaks",
        fallback="the configuration lacks these numbers",
    ),
    *entries(
        "torch._dynamo.compiled_autograd",
        "compiled_autograd_enabled",
        use="measures the profiler's overhead only where that compiles no backward pass",
        fallback="measuring the overhead may compile a backward pass",
    ),
    *entries(
        "torch._subclasses.fake_tensor",
        "FakeTensor",
        use="leaves tensors without memory out of the memory sums",
        fallback="the compiler's fake tensors count as memory",
    ),
)

MODULES = (
    *entries(
        "torch._C",
        "DisableTorchFunction",
        use="hides from the program's modes that tensors are asked whether they get gradients",
        fallback="modes of the program see these questions",
    ),
    *entries(
        "torch.nn.modules.module",
        "Module._modules",
        "Module._parameters",
        use="reads a module's children and parameters without running code of the program",
        fallback="memory and the modules of tensor parallelism are missing",
    ),
    *entries(
        "torch.nn.modules.module",
        "Module._forward_hooks",
        "Module._forward_pre_hooks",
        use="finds the modules that tensor parallelism prepared",
        fallback="the modules of tensor parallelism are missing",
    ),
    *entries(
        "torch.nn.modules.module",
        "Module._call_impl",
        use="tells whether a collective is part of a module's forward",
        fallback="collectives written by hand have no purpose",
    ),
    *entries(
        "torch",
        "Tensor._indices",
        "Tensor._values",
        use="counts the memory of sparse tensors",
        fallback="memory is missing for models with sparse tensors",
    ),
    *entries(
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
        "ActivationWrapper._checkpoint_wrapped_module",
        use="leaves the wrapper of activation checkpointing out of names of modules",
        fallback="names of modules contain the wrapper's",
    ),
)

PHASES = (
    *entries(
        "torch.nn.utils.clip_grad",
        "_get_total_norm",
        "_clip_grads_with_norm_",
        use="puts spans around gradient clipping",
        fallback="clipping is not a phase of its own",
    ),
    *entries(
        "torch.utils.checkpoint",
        "_CheckpointFrame",
        use="puts spans around the recomputation of checkpoints",
        fallback="recomputation counts as backward",
    ),
    *entries(
        "torch.amp.autocast_mode",
        "autocast._enabled",
        use="reads the data type of mixed precision",
        fallback="the data type of mixed precision is missing",
    ),
    *entries(
        "torch.optim.adam",
        "Adam._step_supports_amp_scaling",
        use="tells a fused scaled step from a scaled step",
        fallback="fused scaled steps are named as scaled steps",
    ),
)

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

PIPELINES = (
    *entries(
        "torch.distributed.pipelining.stage",
        "_PipelineStageBase",
        use="puts spans around the actions of pipelines",
        fallback="pipelines are missing",
    ),
    *entries(
        _SCHEDULES,
        "_PipelineSchedule",
        "_PipelineSchedule._maybe_compute_loss",
        use="puts spans around the actions of pipelines",
        fallback="pipelines are missing",
    ),
    *entries(
        _SCHEDULES,
        "_ScheduleForwardOnly",
        use="names a schedule",
        fallback="evaluations have an unknown schedule",
    ),
    *entries(
        _SCHEDULES,
        "PipelineScheduleMulti._stages",
        "PipelineScheduleSingle._stage",
        use="finds the stages of a schedule",
        fallback="the schedule, its stages and microbatches are unknown",
    ),
    *entries(
        _SCHEDULES,
        "_PipelineSchedule._n_microbatches",
        use="reads the number of microbatches",
        fallback="pipelines are not described",
    ),
    *entries(
        _SCHEDULES,
        "_PipelineSchedule._has_backward",
        use="tells training from evaluation",
        fallback="the schedule of an evaluation may be shown",
    ),
    *entries(
        _SCHEDULES,
        "_PipelineSchedule._loss_fn",
        use="marks the computation of the loss",
        fallback="the loss counts as no action",
    ),
)

RPC = (
    *entries(
        f"{_RPC}.api",
        "_is_current_rpc_agent_set",
        use="tells whether this process is a worker",
        fallback="remote calls are missing",
        needs="RPC",
    ),
    *entries(
        f"{_RPC}.api",
        "_get_current_rpc_agent",
        use="finds the name and number of this worker",
        fallback="nothing can be recorded in workers of RPC",
        needs="RPC",
    ),
    *entries(
        "torch._C._distributed_rpc",
        "TensorPipeAgent._get_backend_options",
        use="finds how many threads of a worker run requests",
        fallback="the number of threads is not known",
        needs="RPC",
    ),
)

PRIVATE_NAMES: tuple[PrivateName, ...] = (
    *(*PROFILER, *COMPILER, *MODULES, *PHASES),
    *(*GROUPS, *DDP, *FSDP, *PIPELINES, *RPC),
    *REMOTE_CALLS,
)
