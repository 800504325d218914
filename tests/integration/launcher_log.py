"""When an elastic job lost and regained its ranks, by its launcher's log and by what its probe printed."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime

_LINE = re.compile(r"^[IWE](\d{4} \d\d:\d\d:\d\d\.\d{6})\s+\d+ .*?\] (.*)$", re.MULTILINE)
_STEP = re.compile(r"^(\d+\.\d+) step (\d+) of (\d+) ranks", re.MULTILINE)
_BREAK = re.compile(r"^(\d+\.\d+) (?:rank \d+ kills itself before step (\d+)|the second machine leaves)", re.MULTILINE)
_NOTICED = ("Detected", "Worker group FAILED")
_STARTING = "Starting worker group"


@dataclass(frozen=True, kw_only=True)
class Restart:
    """One restart, in seconds of the wall clock.

    Attributes:
        broken_s: when the old attempt came to its end.
        started_s: when the launcher started the new processes.
        stepped_s: when the new attempt had made its first step.
        repeated: steps that both attempts made.
        last_step_may_be_cut: whether the launcher ended the ranks: then perhaps between a step's line, which is printed
            before its checkpoint is written, and the end of the step.
    """

    broken_s: float
    started_s: float
    stepped_s: float
    repeated: int
    last_step_may_be_cut: bool


def restarts(stdout: str, stderr: str) -> list[Restart]:
    """Return the restarts. The agent whose log comes first is that which stays."""
    year = time.localtime().tm_year
    logged = [
        (datetime.strptime(f"{year}{when}", "%Y%m%d %H:%M:%S.%f").timestamp(), text)  # noqa: DTZ007 (local time)
        for when, text in _LINE.findall(stderr)
    ]
    steps = [(float(at), int(step)) for at, step, _ in _STEP.findall(stdout)]
    breaks = [(float(at), int(step or 0)) for at, step in _BREAK.findall(stdout)]
    found = []
    for noticed_s in (at for at, text in logged if any(word in text for word in _NOTICED)):
        started_s = min(at for at, text in logged if at > noticed_s and _STARTING in text)
        planted = [(at, step) for at, step in breaks if at <= noticed_s]
        before = [(at, step) for at, step in steps if at < started_s]
        stepped_s, resumed = min((at, step) for at, step in steps if at > started_s)
        last_step_s, last_step = before[-1]
        # What nobody broke, the launcher did, when it noticed that others wait.
        is_planted = bool(planted) and planted[-1][0] >= last_step_s - 2
        broken_s, broken_step = planted[-1] if is_planted else (noticed_s, 0)
        # The rank that kills itself has made the step before, which the one that prints may not live to end.
        repeated = max(last_step + 1, broken_step) - resumed
        found.append(
            Restart(
                broken_s=broken_s,
                started_s=started_s,
                stepped_s=stepped_s,
                repeated=max(repeated, 0),
                last_step_may_be_cut=not is_planted,
            )
        )
    return found
