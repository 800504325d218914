"""Runs in which all names that may be secret have one word in them, and what must hold of outputs and of the code."""

from __future__ import annotations

import ast
import gzip
import json
import re
from pathlib import Path
from typing import Any

from tests.gpu_steps import gpu_steps
from tests.places import DATA

SECRET = "acme"


def assert_no_secret(*texts: str) -> None:
    for text in texts:
        at = text.lower().find(SECRET)
        assert at < 0, text[max(0, at - 200) : at + 100]


def decoding_calls(package: Path) -> list[tuple[str, set[str | None]]]:
    """Return the file name and the keywords of each call below a folder that decodes a trace."""
    readers = [
        file
        for file in package.rglob("*.py")
        if re.search(r"^from tracekit\.read\.decode\.decoder import .*\bdecode", file.read_text(), re.MULTILINE)
    ]
    names = {"decode", "decode_written"}
    return [
        (file.name, {keyword.arg for keyword in node.keywords})
        for file in readers
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def secret_ddp(root: Path) -> Path:
    """Write the recorded DDP run, two ranks on CPUs, with secret names into a folder below `root`; return the folder.

    One more file is no trace.
    """
    folder = root / "acme-runs"
    folder.mkdir(parents=True)
    for rank in (0, 1):
        document = json.loads(gzip.decompress((DATA / "ddp_slow_rank" / f"rank-{rank:06d}.json.gz").read_bytes()))
        known = document["tracekit"]
        known |= {"host": "acme-node-17", "host_id": "acme", "run_id": "acme-job"}
        known |= {"mesh": {"names": ["acme_mesh"], "shape": [2], "coordinate": [rank]}}
        known["strategies"] = ["ddp", "acme_parallel"]
        known["notes"] = [
            {
                "kind": "capture",
                "text": "acme_tower.0 is not wrapped; see /home/john smith/acme/train.py, on acme-node-17",
            }
        ]
        known["settings"] = [
            {"component": "fsdp2", "modules": ["acme_tower.0"], "values": {"reshard_after_forward": bool(rank)}}
        ]
        group = {"id": 7, "name": "acme_g", "desc": "mesh_acme_mesh", "backend": "gloo", "ranks": [0, 1]}
        known["groups"].append({**group, "parallelism": None})
        for module in known["ddp"]:
            module |= {"module": "AcmeNet", "comm_hook": "acme_hook"}
            for bucket in module["buckets"]:
                bucket["parameters"] = [f"acme_tower.{name}" for name in bucket["parameters"]]
        document |= {"host_name": "acme-node-17", "traceName": "/home/acme/rank.json"}
        _add_spans(document["traceEvents"])
        name = f"acme-node-17.rank-{rank:06d}.json"
        (folder / name).write_text(json.dumps(document))
    (folder / "acme-notes.json").write_text('{"traceEvents": [{"ph": "X", "acme')
    return folder


def secret_gpu(root: Path) -> Path:
    """Write two GPU ranks with secret names into a folder below `root`; return the folder."""
    folder = root / "acme-gpus"
    folder.mkdir(parents=True)
    for rank in (0, 1):
        trace = gpu_steps(rank)
        trace.host = "acme-node-17"
        trace.nccl("all_gather", 240, 20, launched_at=230, description="experts_of_acme", group=[0, 1])
        document = json.loads(trace.text())
        group = {"pg_name": "5", "pg_desc": "experts_of_acme", "backend_config": "nccl", "pg_size": 2, "ranks": [0, 1]}
        document["distributedInfo"] |= {"pg_config": [group]}
        _add_spans(document["traceEvents"])
        (folder / f"acme-node-17_{rank}.pt.trace.json").write_text(json.dumps(document))
    return folder


def _add_spans(events: list[dict[str, Any]]) -> None:
    """Add spans with secret names and arguments around the first operator."""
    first = next(event for event in events if event.get("cat") == "cpu_op")
    spans = {
        "acme: load a shard": "user_annotation",
        "tracekit.module:acme_tower.0.up": "user_annotation",
        "tracekit.fsdp:use forward acme_tower.0|acme_head": "user_annotation",
        "FSDP::pre_forward (acme_tower.0)": "user_annotation",
        "tracekit.rpc:call.1.17 ->acme_server pull_acme": "user_annotation",
        "/home/acme/train.py(12): acme_step": "python_function",
        "nn.Module: AcmeTower_0": "python_function",
        "<eval_with_key>.12 from /home/acme/x.py:1276 in wrapped(4): forward": "python_function",
        "<string>(2): acme_init": "python_function",
        "<built-in method acme_pack of PyCapsule object at 0x7f>": "python_function",
        "enumerate(DataLoader)#AcmeIter.__next__": "user_annotation",
        "[pl][profile][Strategy]AcmeStrategy.training_step": "user_annotation",
        "FSDP::pre_forward for acme block": "user_annotation",
        "Optimizer.step#AcmeAdam.step": "user_annotation",
        "gloo:all_reduce acme": "user_annotation",
        "tracekit.logging:acme.log": "user_annotation",
        "acme flush": "overhead",
        "acme_copy": "acme_category",
        "/home/acme/env/lib/python3.11/site-packages/torch/nn/modules/linear.py(116): forward": "python_function",
    }
    arguments = {"kernel_file": "/tmp/acme/k.py", "Concrete Inputs": ["acme", "3"], "Process Group Name": "acme_g"}
    arguments |= {"acme_key": 5, "Input type": ["acme_type"]}
    added = [
        {**first, "name": name, "cat": category, "args": {"Ev Idx": 1, "acme note": "acme", **arguments}}
        for name, category in spans.items()
    ]
    events += added
    names = {"name": "acme worker"}
    events.append({**first, "ph": "M", "name": "thread_name", "args": names})
    events.append({**first, "ph": "M", "name": "thread_name", "tid": 7000, "args": {"name": "pt_acme"}})
    events.append({**first, "name": "aten::add", "tid": 7000, "args": {"acme_key": 5}})
    events.append({**first, "ph": "M", "name": "thread_name", "tid": 7001, "args": {"name": "stream acme"}})
    events.append({**first, "name": "aten::add", "tid": 7001})
    events.append({**first, "ph": "M", "name": "process_name", "args": names})
