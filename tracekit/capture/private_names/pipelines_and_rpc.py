"""Lists the private names that recordings of pipelines and of remote calls use."""

from __future__ import annotations

from tracekit.capture.private_names.entry import entries

_SCHEDULES = "torch.distributed.pipelining.schedules"
_RPC = "torch.distributed.rpc"

__all__ = ["PIPELINES", "RPC"]

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
    *entries(
        f"{_RPC}.api",
        "_finalize_shutdown",
        use="writes what a server recorded before it ends",
        fallback="a server may end before its last calls are written",
        needs="RPC",
    ),
    *entries(
        f"{_RPC}.api",
        "_invoke_rpc_python_udf",
        "_invoke_remote_python_udf",
        "_invoke_rpc_builtin",
        "_invoke_remote_builtin",
        "_invoke_rpc_torchscript",
        "_invoke_remote_torchscript",
        use="records remote calls of one kind",
        fallback="remote calls of this kind are missing",
        needs="RPC",
    ),
    *entries(
        f"{_RPC}.internal",
        "_InternalRPCPickler",
        use="marks the calls, and names their functions",
        fallback="remote calls are missing",
        needs="RPC",
    ),
    *entries(
        f"{_RPC}.rref_proxy",
        "_local_invoke",
        use="names the methods that are called through an RRef",
        fallback="calls through an RRef have the name of torch's function",
        needs="RPC",
    ),
    *entries(
        "torch._C._distributed_rpc",
        "PyRRef._get_future",
        "PyRRef.to_here",
        use="records when a remote call is complete",
        fallback="waits for remote references are missing",
        needs="RPC",
    ),
    *entries(
        "torch._C",
        "Future.wait",
        use="records the waits for remote calls",
        fallback="waits for remote calls are missing",
    ),
)
