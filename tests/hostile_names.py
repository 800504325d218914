"""Runs whose names try to control what shows them: a terminal, a browser, a spreadsheet, a CI system."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.gpu_steps import gpu_steps
from tests.places import DATA

MARK = "EVIL"
_OF_A_TERMINAL = "\x1b[31;1m\x1b]8;;http://x/\x07\x1b]0;t\x1b\\\x9b2J\x9d52;c;x\x9c\x08\x7f"
_INVISIBLE = "\u202e\u2066\u200b\ufeff\u2028\u2029"
_LINES = "\r\t\x0b\x0c\x85\n::error file=a,line=1::forged\n##[error]forged\n"
_OF_A_PAGE = "</script><img src=x onerror=alert(1)>`|]]>&"
HOSTILE = f"{MARK}{_OF_A_TERMINAL}{_INVISIBLE}{_LINES}{_OF_A_PAGE}\0"
NAME_OF_A_FILE = HOSTILE.replace("/", "").replace("\0", "")
_LONG = "x" * 1_000_000


def hostile_ddp(folder: Path) -> Path:
    """Write the recorded DDP run, two ranks on CPUs, with hostile names into a folder; return the folder."""
    for rank in (0, 1):
        document = json.loads(gzip.decompress((DATA / "ddp_slow_rank" / f"rank-{rank:06d}.json.gz").read_bytes()))
        known = document["tracekit"]
        known |= {"host": HOSTILE + _LONG, "run_id": HOSTILE, "host_id": f"{HOSTILE}{rank}"}
        known["device"]["name"] = HOSTILE
        known["mesh"] = {"names": [HOSTILE, HOSTILE], "shape": [2, 1], "coordinate": [rank, 0]}
        known["notes"] = [{"kind": "capture", "text": HOSTILE + _LONG}]
        known["strategies"] = ["ddp", HOSTILE]
        known["settings"] = [
            {"component": HOSTILE, "modules": [HOSTILE], "values": {HOSTILE: f"{HOSTILE}{rank}"}},
        ]
        for group in (*known["groups"], {"desc": ""}):
            group["desc"] = HOSTILE + group["desc"]
        for module in known.get("ddp", []):
            module["module"] = module["comm_hook"] = HOSTILE
            for bucket in module["buckets"]:
                bucket["parameters"] = [f"{HOSTILE}{name}" for name in bucket["parameters"]]
        _rename(document, lambda event: event["ph"] == "M" or event["name"] in {"aten::copy_", "aten::addmm"})
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank-{rank:06d} {NAME_OF_A_FILE[:120]}.json").write_text(json.dumps(document))
    (folder / f"{NAME_OF_A_FILE[:120]}.json").write_text('{"traceEvents": [{"ph": "X", \x1b[31m')
    return folder


def hostile_gpu(folder: Path) -> Path:
    """Write two GPU ranks with hostile kernels, groups, annotations and hosts into a folder; return the folder."""
    for rank in (0, 1):
        trace = gpu_steps(rank)
        trace.host = HOSTILE
        trace.label(HOSTILE, 0, 250).label("tracekit.module:" + HOSTILE, 10, 20)
        trace.kernel(f"{HOSTILE}nccl_like{_LONG}", 90, 5, launched_at=80, stream=31)
        trace.nccl("all_gather", 240, 20, launched_at=230, description=HOSTILE, group=[0, 1])
        document = json.loads(trace.text())
        document["deviceProperties"] = [{"id": 0, "name": HOSTILE}]
        document["distributedInfo"] |= {"pg_config": [_group(HOSTILE)], "backend": HOSTILE}
        _rename(document, lambda event: event["name"] in {"void gemm<float>(float*)", "aten::mm"})
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return folder


def _group(description: str) -> dict[str, Any]:
    return {"pg_name": HOSTILE, "pg_desc": description, "backend_config": HOSTILE, "pg_size": 2, "ranks": [0, 1]}


def _rename(document: dict[str, Any], chosen: Any) -> None:
    for event in document["traceEvents"]:
        if chosen(event):
            event["args"] = {**(event.get("args") or {}), HOSTILE: HOSTILE}
            if event["ph"] == "M":
                event["args"] |= {"name": HOSTILE, "labels": HOSTILE}
            else:
                event["name"] = HOSTILE + event["name"]
