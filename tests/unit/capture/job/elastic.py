"""Elastic launches and what their attempts leave on the disk, made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tracekit.capture.job.elastic_launch import ElasticLaunch
from tracekit.capture.output.paths import progress_file
from tracekit.model.metadata import ProgressHeader
from tracekit.model.metadata.job import FILE_BYTES, pack_entry, pack_header

S = 1_000_000_000
AGENT_START_NS = 1_000 * S

LAUNCH = ElasticLaunch(
    elastic_id="myjob",
    may_restart=True,
    agent="agent-a",
    worker="worker-0",
    agent_start_ns=AGENT_START_NS,
    start_ns=AGENT_START_NS + 2 * S,
)


def attempt_of(launch: ElasticLaunch, number: int, at_s: int, **changes: Any) -> ElasticLaunch:
    """The launch of a later attempt, whose worker starts `at_s` after the agent."""
    start_ns = AGENT_START_NS + at_s * S
    return replace(launch, worker=f"worker-{number}", start_ns=start_ns, **changes)


def leave_progress(
    path: Path, run_id: str, launch: ElasticLaunch, attempt: int, last_sign_s: int, rank: int = 0
) -> None:
    """Write the progress file of a rank that lived until `last_sign_s` after the start of agent a."""
    assert launch.start_ns is not None
    header = ProgressHeader(
        run_id=run_id,
        attempt=attempt,
        rank=rank,
        world_size=1,
        pid=1,
        host="a",
        host_id="a",
        elastic_id=launch.elastic_id,
        agent=launch.agent,
        worker=launch.worker,
        restarts=launch.restarts,
        process_start_ns=launch.start_ns,
        first_call_ns=launch.start_ns,
    )
    file = progress_file(path, run_id, attempt, rank, 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = bytearray(FILE_BYTES)
    content[: len(pack_header(header))] = pack_header(header)
    offset, entry = pack_entry(0, 7, AGENT_START_NS + last_sign_s * S)
    content[offset : offset + len(entry)] = entry
    file.write_bytes(content)
