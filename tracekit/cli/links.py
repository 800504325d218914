"""`tracekit links`: what the links between the ranks of a job can do."""

from __future__ import annotations

import contextlib
import os
from importlib.util import find_spec
from pathlib import Path

import click
import msgspec

from tracekit.analysis.communication.link_comparison import link_time
from tracekit.capture.job.process import identify
from tracekit.checks.link_timing import ELEMENT_BYTES, KINDS, Effort, measure_job
from tracekit.cli.inputs.echo import echo_drawn, echo_written
from tracekit.cli.inputs.options import SECTIONS
from tracekit.errors import InputError, UsageError
from tracekit.model.links import LinkMeasurements
from tracekit.render.output import new_file

_EXAMPLE = "torchrun --nproc-per-node 2 -m tracekit links -o links.json"


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE, as JSON.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--kinds", type=SECTIONS, default=",".join(KINDS), metavar="A,B", help="Only these collectives.")
@click.option("--min-bytes", type=click.IntRange(min=ELEMENT_BYTES), default=Effort.min_bytes, show_default=True,
              metavar="N", help="Smallest size of the full array.")  # fmt: skip
@click.option("--max-bytes", type=click.IntRange(min=ELEMENT_BYTES), default=Effort.max_bytes, show_default=True,
              metavar="N", help="Largest size.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(min=1), default=Effort.repeats, show_default=True,
              metavar="N", help="Repeats of a measurement.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0), default=Effort.seconds, show_default=True,
              metavar="S", help="Begin no size after S s.")  # fmt: skip
def links(
    output: Path | None,
    force: bool,
    kinds: tuple[str, ...],
    min_bytes: int,
    max_bytes: int,
    repeats: int,
    seconds: float,
) -> None:
    """Time collectives between the ranks of a job, over sizes.

    Run it in each process of a job, on the machines and with the launcher of the training:

        torchrun --nproc-per-node 2 -m tracekit links -o links.json

    It uses NCCL where each process has a GPU, else Gloo. `tracekit analyze --links` compares a run with the result.
    """
    if unknown := set(kinds) - set(KINDS):
        raise UsageError(f"--kinds: no collective {', '.join(sorted(unknown))}", hint=f"there are {', '.join(KINDS)}")
    if max_bytes < min_bytes:
        raise UsageError(f"--max-bytes {max_bytes} is below --min-bytes {min_bytes}", hint="swap them")
    if find_spec("torch") is None:
        raise InputError("timing collectives needs torch", hint="pip install 'torch-tracekit[torch]'")
    if "RANK" not in os.environ or "MASTER_ADDR" not in os.environ:
        raise UsageError("this process is not part of a job", hint=f"start one with: {_EXAMPLE}")
    effort = Effort(min_bytes=min_bytes, max_bytes=max_bytes, repeats=repeats, seconds=seconds)
    is_first = identify().rank == 0
    # The file is refused before anything is measured.
    with new_file(output, force=force) if output and is_first else contextlib.nullcontext() as stream:
        measured = measure_job(kinds=kinds, effort=effort)
        if measured is None:
            return
        echo_drawn(_table(measured))
        if stream is not None:
            stream.write(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
    if output is not None:
        echo_written(output)


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
