"""Runs a probe on real processes and analyses what they record."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tracekit
from benchmarks.studies.real_jobs.pairs import Pair
from tracekit.render.json_result import result_json

_ROOT = Path(__file__).parents[3]
_LIMIT_S, _ATTEMPTS = 180, 3  # Gloo may abort at exit
_ALWAYS_SLEEP = frozenset({"parameter_server", "server_by_messages"})  # without an option for it


def results_of(
    pair: Pair, folder: Path, *, environment: Mapping[str, str] | None = None, plain: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `analyze --json` says of the run with the defect, and of the one without.

    Runs are recorded below `folder`; those that are there already are only analysed. RuntimeError if a job fails.

    environment, plain: as of `record`.
    """
    places = {folder / "planted": pair.planted, folder / "removed": pair.removed}
    for place, options in places.items():
        if not place.exists():
            arguments = (*pair.options, *options)
            record(pair.probe, arguments, place, ranks=pair.ranks, environment=environment, plain=plain)
    planted, removed = (json.loads(result_json(tracekit.analyze(place))) for place in places)
    return planted, removed


def record(
    probe: str,
    options: Sequence[str],
    folder: Path,
    *,
    ranks: int,
    environment: Mapping[str, str] | None = None,
    plain: bool = False,
) -> None:
    """Let a probe record a run in `folder`. RuntimeError if the job fails several times.

    environment: variables of the job, besides those that it has. plain: torch.profiler records in place of the probe.
    """
    # A free port of the loopback interface, and one thread each: ranks sleep instead of competing for cores.
    launcher = ["-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(ranks)]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    script = [str(Path(__file__).with_name("plain_profiler.py"))] if plain else []
    script += [str(_ROOT / "probes" / f"{probe}.py"), "--out", str(folder), "--device", "cpu"]
    script += [] if probe in _ALWAYS_SLEEP else ["--sleep-compute"]
    command = [sys.executable, *launcher, *script, *options]
    variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT), "GLOO_SOCKET_IFNAME": "lo", **(environment or {})}
    exit_code, errors = 0, ""
    for _ in range(_ATTEMPTS):
        with subprocess.Popen(
            command, env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as job:
            try:
                _, errors = job.communicate(timeout=_LIMIT_S)
            except subprocess.TimeoutExpired:
                job.terminate()  # the launcher ends its ranks
                _, errors = job.communicate()
        exit_code = job.returncode
        if exit_code == 0:
            return
        shutil.rmtree(folder, ignore_errors=True)
    raise RuntimeError(f"{' '.join(command)}: exit code {exit_code}\n{errors[-2000:]}")
