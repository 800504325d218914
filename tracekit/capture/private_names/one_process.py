"""Lists the private names that every recording uses: of the profiler, the compiler, modules and phases."""

from __future__ import annotations

from tracekit.capture.private_names.entry import entries

__all__ = ["COMPILER", "MODULES", "PHASES", "PROFILER"]

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
