"""Every private name of torch that tracekit reads, calls, patches or recognises.

Each part says what is lost without names, and below it what tracekit does with them: `module: name, name`. A module
alone is private itself.

torch may rename or remove these without notice; the docstring of the package says what to do then.
`tests/unit/capture/private_names/test_table.py` fails if the code uses one that is not listed, or if the installed
torch lacks one. `tracekit doctor` shows what is lost without it.
"""

from __future__ import annotations

from tracekit.capture.private_names.entry import PrivateName, entries
from tracekit.capture.rpc.private_names import REMOTE_CALLS

_EVAL_FRAME = "torch._C._dynamo.eval_frame"
_CONVERT_FRAME = "torch._dynamo.convert_frame.ConvertFrame"
_COLLECTIVES = "torch._C._distributed_c10d"
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
_FSDP1_INIT = "torch.distributed.fsdp._init_utils"
_FSDP2 = "torch.distributed.fsdp._fully_shard"
_SCHEDULES = "torch.distributed.pipelining.schedules"
_RPC = "torch.distributed.rpc"

PROFILER = {
    "nothing can be recorded": {
        "torch._C._profiler: _RecordFunctionFast": "opens the spans of all observers and steps",
        "torch._C._profiler: _ExperimentalConfig": (
            "has torch record the threads of RPC, and build no list of events in Python"
        ),
        "torch.autograd: _profiler_enabled, profiler._is_profiler_enabled": "sees that another profiler runs",
        "torch.autograd.profiler: profile._prepare_trace, profile._start_trace": (
            "ends the recording before another profiler starts"
        ),
    },
    "forked children collect events in memory": {
        "torch._C._autograd: _enable_record_function": "stops the recording in a forked child",
    },
    "backward passes, forwards and purposes of collectives have no spans": {
        "torch._C: _current_graph_task_id": "tells whether a backward pass runs on this thread",
    },
    "the profiler's overhead is unknown": {
        "torch._C: _len_torch_dispatch_stack": "measures the profiler's overhead only where no dispatch mode is active",
    },
}

# What older versions have under another name: each part is followed by the one of before.
SKIPPING = {
    "torch.compile compiles functions of the capture": {
        f"{_EVAL_FRAME}: _FrameAction, _FrameExecStrategy, set_code_exec_strategy": (
            "has torch.compile skip the functions of the capture"
        ),
    },
}
OLDER_SKIPPING = {
    "torch.compile compiles functions of the capture": {
        f"{_EVAL_FRAME}: skip_code": "has torch.compile skip the functions of the capture",
    },
}
BACKEND = {
    "the configuration names a wrapper in its place": {
        "torch._dynamo.convert_frame: ConvertFrame._torchdynamo_orig_backend": "names the backend of torch.compile",
    },
}
OLDER_BACKEND = {
    "the configuration names a wrapper in its place": {
        "torch._dynamo.convert_frame: ConvertFrame._torchdynamo_orig_callable": "names the backend of torch.compile",
    },
}

COMPILER = {
    "hooks may have compiled modules compiled again; their names have `_orig_mod` in them": {
        "torch._dynamo.eval_frame: OptimizedModule, OptimizedModule._orig_mod": (
            "finds compiled modules and the names of the modules inside"
        ),
    },
    "hooks may have compiled modules compiled again": {
        "torch._dynamo.config: skip_nnmodule_hook_guards": "tells whether a hook has a module compiled again",
        "torch.nn.modules.module: Module._compiled_call_impl": "finds modules compiled in place",
    },
    "the configuration lacks what is compiled": {
        "torch._dynamo.eval_frame: OptimizeContext, OptimizeContext._dynamic": "reads the options of torch.compile",
    },
    "the configuration lacks compiled functions": {
        "torch._dynamo.convert_frame: output_codes": "names the functions that were compiled",
    },
    "the configuration lacks these numbers": {
        "torch._dynamo.utils: counters": "counts compiled graphs and graph breaks",
    },
    "measuring the overhead may compile a backward pass": {
        "torch._dynamo.compiled_autograd: compiled_autograd_enabled": (
            "measures the profiler's overhead only where that compiles no backward pass"
        ),
    },
    "the compiler's fake tensors count as memory": {
        "torch._subclasses.fake_tensor: FakeTensor": "leaves tensors without memory out of the memory sums",
    },
}

MODULES = {
    "modes of the program see these questions": {
        "torch._C: DisableTorchFunction": (
            "hides from the program's modes that tensors are asked whether they get gradients"
        ),
    },
    "memory and the modules of tensor parallelism are missing": {
        "torch.nn.modules.module: Module._modules, Module._parameters": (
            "reads a module's children and parameters without running code of the program"
        ),
    },
    "the modules of tensor parallelism are missing": {
        "torch.nn.modules.module: Module._forward_hooks, Module._forward_pre_hooks": (
            "finds the modules that tensor parallelism prepared"
        ),
    },
    "collectives written by hand have no purpose": {
        "torch.nn.modules.module: Module._call_impl": "tells whether a collective is part of a module's forward",
    },
    "memory is missing for models with sparse tensors": {
        "torch: Tensor._indices, Tensor._values": "counts the memory of sparse tensors",
    },
    "torch may warn of a tensor that dies while the capture looks at it": {
        "torch: Tensor._fix_weakref": "holds a tensor that only a graph held",
    },
    "names of modules contain the wrapper's": {
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper: ActivationWrapper._checkpoint_wrapped_module": (
            "leaves the wrapper of activation checkpointing out of names of modules"
        ),
    },
}

PHASES = {
    "clipping is not a phase of its own": {
        "torch.nn.utils.clip_grad: _get_total_norm, _clip_grads_with_norm_": "puts spans around gradient clipping",
    },
    "recomputation counts as backward": {
        "torch.utils.checkpoint: _CheckpointFrame": "puts spans around the recomputation of checkpoints",
    },
    "the data type of mixed precision is missing": {
        "torch.amp.autocast_mode: autocast._enabled": "reads the data type of mixed precision",
    },
    "fused scaled steps are named as scaled steps": {
        "torch.optim.adam: Adam._step_supports_amp_scaling": "tells a fused scaled step from a scaled step",
    },
}

GROUPS = {
    "process groups are missing, and all tables by group": {
        "torch.distributed.distributed_c10d: _world, _World.pg_map, _World.pg_names": "lists the process groups",
    },
    "each rank writes a run of its own": {
        "torch.distributed.distributed_c10d: _get_default_store": "shares the run's name and measures clocks",
    },
    "pipelines are not described": {
        "torch.distributed.distributed_c10d: _get_default_group": "finds the group of a pipeline",
    },
    "the newer names of these collectives are used": {
        f"{_COLLECTIVES}: ProcessGroup._allgather_base, ProcessGroup._reduce_scatter_base": (
            "sees collectives written by hand"
        ),
    },
    "messages of a batch have no span": {
        f"{_COLLECTIVES}: ProcessGroup._start_coalescing, ProcessGroup._end_coalescing": (
            "marks the messages of one batch"
        ),
    },
    "receives from any source are not matched": {
        f"{_COLLECTIVES}: Work._source_rank": "finds the sender of a receive from any source",
    },
    "its collectives count as written by hand": {
        "torch.nn.modules._functions": "tells synchronised batch norm from collectives written by hand",
    },
    "collectives of these wrappers count as written by hand": {
        "torch.distributed._composable": "tells torch's wrappers from collectives written by hand",
    },
}

FLIGHT_RECORDER = {
    "collectives on CPUs have no entries of the flight recorder": {
        f"{_COLLECTIVES}: _dump_fr_trace_json": (
            "reads the collectives of CPUs and of other devices from the flight recorder"
        ),
    },
}

NCCL = {
    "collectives on GPUs have no entries of the flight recorder": {
        f"{_COLLECTIVES}: _dump_nccl_trace_json": "reads the collectives of NCCL from the flight recorder",
    },
}

DDP = {
    "the time in communication hooks is not marked": {
        "torch.distributed: _register_comm_hook": "puts spans around communication hooks of DDP",
    },
    "buckets of the first step have no parameters": {
        "torch.distributed: _DEFAULT_FIRST_BUCKET_BYTES, _compute_bucket_assignment_by_size": (
            "maps parameters to DDP's buckets before DDP rebuilds them"
        ),
    },
    "buckets of these hooks are not marked": {
        "torch.nn.parallel.distributed: DistributedDataParallel._comm_hooks": (
            "finds communication hooks that were registered before the probe"
        ),
    },
    "DDP's modules and buckets are missing": {
        "torch.nn.parallel.distributed: DistributedDataParallel._get_ddp_logging_data": "reads DDP's buckets",
    },
}

FSDP = {
    "FSDP1's modules are missing": {
        f"{_FSDP1}: FullyShardedDataParallel._handle": "tells the parameters of FSDP1's modules apart",
        "torch.distributed.fsdp._flat_param: FlatParameter._unpadded_unsharded_size": (
            "reads the size of FSDP1's modules"
        ),
    },
    "names of modules contain the wrapper's": {
        f"{_FSDP1}: FullyShardedDataParallel._fsdp_wrapped_module": "leaves FSDP1's wrapper out of names of modules",
    },
    "FSDP1's communication is not named by module": {
        f"{_FSDP1}: _pre_forward_unshard": "puts spans around FSDP1's communication",
        "torch.distributed.fsdp._runtime_utils: _unshard, _reduce_grad, _reduce_grad_no_shard, _pre_backward_hook": (
            "puts spans around FSDP1's communication"
        ),
    },
    "FSDP1's unshards are not named by module": {
        "torch.distributed.fsdp._flat_param: FlatParamHandle._training_state": "tells forward from backward in FSDP1",
    },
    "modules of tensor parallelism that FSDP2 shards too are missing": {
        "torch.distributed.fsdp: FSDPModule._get_fsdp_state": "finds the groups and the modules of FSDP2",
    },
    "FSDP2's modules are missing": {
        f"{_FSDP2}._fsdp_param_group: FSDPParamGroup.unshard, FSDPParamGroup._module_fqn": (
            "notes which modules FSDP2 unshards"
        ),
        f"{_FSDP2}._fsdp_param: FSDPParam._orig_size": "reads the size of FSDP2's modules",
    },
    "the configuration says that none are": {
        f"{_FSDP2}._fsdp_state: FSDPState._states_to_forward_prefetch, FSDPState._states_to_backward_prefetch": (
            "reads how many modules FSDP2 prefetches explicitly"
        ),
    },
}

FSDP1_GROUP = {
    "hybrid sharding by FSDP1 is shown as plain sharding": {
        f"{_FSDP1}: FullyShardedDataParallel._inter_node_pg": "finds the group over which FSDP1 replicates",
    },
}
FSDP1_CORE = {
    "the configuration of FSDP1 is missing": {
        f"{_FSDP1}: FullyShardedDataParallel._use_orig_params": "reads the configuration of FSDP1",
    },
}
FSDP1_RUNTIME = {
    "the configuration of FSDP1 lacks its communication hook": {
        f"{_FSDP1}: FullyShardedDataParallel._comm_hook": "names the communication hook of FSDP1",
    },
}
FSDP2_ONE_GROUP = {
    "modules of tensor parallelism that FSDP2 shards too are missing": {
        f"{_FSDP2}._fsdp_state: FSDPState._fsdp_param_group": "finds the parameters that FSDP2 shards as one",
    },
}
FSDP2_GROUPS = {
    "modules of tensor parallelism that FSDP2 shards too are missing": {
        f"{_FSDP2}._fsdp_state: FSDPState._fsdp_param_groups": "finds the parameters that FSDP2 shards as one",
    },
}

PIPELINES = {
    "pipelines are missing": {
        "torch.distributed.pipelining.stage: _PipelineStageBase": "puts spans around the actions of pipelines",
        f"{_SCHEDULES}: _PipelineSchedule, _PipelineSchedule._maybe_compute_loss": (
            "puts spans around the actions of pipelines"
        ),
    },
    "evaluations have an unknown schedule": {
        f"{_SCHEDULES}: _ScheduleForwardOnly": "names a schedule",
    },
    "the schedule, its stages and microbatches are unknown": {
        f"{_SCHEDULES}: PipelineScheduleMulti._stages, PipelineScheduleSingle._stage": "finds the stages of a schedule",
    },
    "pipelines are not described": {
        f"{_SCHEDULES}: _PipelineSchedule._n_microbatches": "reads the number of microbatches",
    },
    "the schedule of an evaluation may be shown": {
        f"{_SCHEDULES}: _PipelineSchedule._has_backward": "tells training from evaluation",
    },
    "the loss counts as no action": {
        f"{_SCHEDULES}: _PipelineSchedule._loss_fn": "marks the computation of the loss",
    },
}

RPC = {
    "remote calls are missing": {
        f"{_RPC}.api: _is_current_rpc_agent_set": "tells whether this process is a worker",
    },
    "nothing can be recorded in workers of RPC": {
        f"{_RPC}.api: _get_current_rpc_agent": "finds the name and number of this worker",
    },
    "the number of threads is not known": {
        "torch._C._distributed_rpc: TensorPipeAgent._get_backend_options": (
            "finds how many threads of a worker run requests"
        ),
    },
}

PRIVATE_NAMES: tuple[PrivateName, ...] = (
    *entries(PROFILER),
    *entries(SKIPPING, instead=f"{_EVAL_FRAME}.skip_code"),
    *entries(OLDER_SKIPPING, instead=f"{_EVAL_FRAME}.set_code_exec_strategy"),
    *entries(BACKEND, instead=f"{_CONVERT_FRAME}._torchdynamo_orig_callable"),
    *entries(OLDER_BACKEND, instead=f"{_CONVERT_FRAME}._torchdynamo_orig_backend"),
    *entries(COMPILER),
    *entries(MODULES),
    *entries(PHASES),
    *entries(GROUPS),
    *entries(FLIGHT_RECORDER, since="2.8"),
    *entries(NCCL, needs="NCCL"),
    *entries(DDP),
    *entries(FSDP),
    *entries(FSDP1_GROUP, set_by=f"{_FSDP1_INIT}._init_process_group_state_for_hybrid_shard"),
    *entries(FSDP1_CORE, set_by=f"{_FSDP1_INIT}._init_core_state"),
    *entries(FSDP1_RUNTIME, set_by=f"{_FSDP1_INIT}._init_runtime_state"),
    *entries(FSDP2_ONE_GROUP, instead=f"{_FSDP2}._fsdp_state.FSDPState._fsdp_param_groups"),
    *entries(FSDP2_GROUPS, instead=f"{_FSDP2}._fsdp_state.FSDPState._fsdp_param_group"),
    *entries(PIPELINES),
    *entries(RPC, needs="RPC"),
    *REMOTE_CALLS,
)
