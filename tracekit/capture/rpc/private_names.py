"""Private names of torch on which the records of remote calls rest."""

from __future__ import annotations

from tracekit.capture.private_names.entry import entries

_RPC = "torch.distributed.rpc"

REMOTE_CALLS = (
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
