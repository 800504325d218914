"""Private names of torch on which the records of remote calls rest."""

from __future__ import annotations

from tracekit.capture.private_names.entry import entries

_RPC = "torch.distributed.rpc"
_REFERENCES = "torch._C._distributed_rpc"

_CALLS = {
    "a server may end before its last calls are written": {
        f"{_RPC}.api: _finalize_shutdown": "writes what a server recorded before it ends",
    },
    "remote calls of this kind are missing": {
        f"{_RPC}.api: _invoke_rpc_python_udf, _invoke_remote_python_udf": "records remote calls of one kind",
        f"{_RPC}.api: _invoke_rpc_builtin, _invoke_remote_builtin": "records remote calls of one kind",
        f"{_RPC}.api: _invoke_rpc_torchscript, _invoke_remote_torchscript": "records remote calls of one kind",
    },
    "remote calls are missing": {
        f"{_RPC}.internal: _InternalRPCPickler": "marks the calls, and names their functions",
    },
    "calls through an RRef have the name of torch's function": {
        f"{_RPC}.rref_proxy: _local_invoke": "names the methods that are called through an RRef",
    },
    "waits for remote references are missing": {
        f"{_REFERENCES}: PyRRef._get_future, PyRRef.to_here": "records when a remote call is complete",
    },
}
_WAITS = {
    "waits for remote calls are missing": {
        "torch._C: Future.wait": "records the waits for remote calls",
    },
}

REMOTE_CALLS = (*entries(_CALLS, needs="RPC"), *entries(_WAITS))
