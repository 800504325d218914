"""What the links between the ranks of a job can do.

    torchrun --nproc-per-node 2 -m tracekit.checks.links -o links.json

Comes in: the command line; it joins a process group of its own (NCCL where every process of a host has a GPU, else
Gloo). Goes out: a table on rank 0, and the `LinkMeasurements` as JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tracekit.analysis.communication.link_comparison import link_time
from tracekit.checks.link_timing import ELEMENT_BYTES, KINDS, Effort, job_device, measure_links
from tracekit.model.links import LinkMeasurements

__all__ = ["main"]


def _table(measured: LinkMeasurements) -> str:
    lines = [
        f"{measured.world_size} ranks on {len(measured.hosts)} host(s), {measured.backend}, {measured.device.name}"
    ]
    for group in measured.groups:
        lines += ["", f"{len(group.ranks)} ranks ({group.link}): {', '.join(map(str, group.ranks))}"]
        lines.append(f"{'kind':15}{'size, bytes':>14}{'time, us':>14}{'algbw, GB/s':>14}{'busbw, GB/s':>14}")
        for row in (row for row in measured.rows if row.group == group.id):
            bandwidths = f"{row.algbw_bps / 1e9:14.3f}{row.busbw_bps / 1e9:14.3f}"
            lines.append(f"{row.kind:15}{row.size_bytes:14,}{row.time_ns / 1e3:14,.1f}{bandwidths}")
        for kind in dict.fromkeys(row.kind for row in measured.rows if row.group == group.id):
            line = link_time([row for row in measured.rows if (row.kind, row.group) == (kind, group.id)])
            if line is not None:
                text = f"{line.latency_ns / 1e3:,.1f} us + size at {line.bandwidth_bps / 1e9:.3f} GB/s"
                lines.append(f"{kind:15}{text}, within {line.error:.0%}")
        for missing in (missing for missing in measured.left_out if missing.group == group.id):
            size = "" if missing.size_bytes is None else f" from {missing.size_bytes:,} bytes"
            lines.append(f"{missing.kind:15}not measured{size}: {missing.reason}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tracekit.checks.links", description="Time collectives over sizes. Run it under torchrun."
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the result to FILE, as JSON")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="A,B", help="only these collectives")
    for option, default, text in (
        ("min-bytes", Effort.min_bytes, "smallest size of the full array"),
        ("max-bytes", Effort.max_bytes, "largest size"),
        ("repeats", Effort.repeats, "repeats of a measurement"),
    ):
        parser.add_argument(f"--{option}", type=int, default=default, metavar="N", help=f"{text} (default {default})")
    parser.add_argument("--seconds", type=float, default=Effort.seconds, metavar="S", help="begin no size after S s")
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no collective {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if options.min_bytes < ELEMENT_BYTES or options.max_bytes < options.min_bytes or options.repeats < 1:
        parser.error("sizes are at least 4 bytes, the largest not below the smallest, and repeats at least 1")
    if options.output is not None and options.output.exists() and not options.force:
        parser.error(f"{options.output} exists; --force overwrites it")
    if "RANK" not in os.environ:
        parser.error("not in a job; run: torchrun --nproc-per-node 2 -m tracekit.checks.links")

    import torch
    import torch.distributed as dist

    device = job_device()
    if device[0] == "cuda":
        torch.cuda.set_device(torch.device(*device))
    dist.init_process_group("nccl" if device[0] == "cuda" else "gloo")
    try:
        effort = Effort(
            min_bytes=options.min_bytes, max_bytes=options.max_bytes, repeats=options.repeats, seconds=options.seconds
        )
        measured = measure_links(kinds=kinds, effort=effort)
        if measured is not None:
            sys.stdout.write(_table(measured))
            if options.output is not None:
                text = msgspec.json.format(msgspec.json.encode(measured).decode(), indent=1)
                options.output.write_text(text + "\n")
                sys.stdout.write(f"\nwrote {options.output}\n")
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
