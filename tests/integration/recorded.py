"""Reading back what launched processes recorded, and what an analysis makes of it."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tracekit.loading.load import load
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.model.spans import LABEL_PREFIX
from tracekit.render.json_result import result_json
from tracekit.report.report import analyze

# On a busy machine the first step may take longer, and would be left out.
EVERY_STEP = SummaryOptions(steps=StepSelection(first=0))

Launch = Callable[..., subprocess.CompletedProcess[str]]


def read_traces(folder: Path) -> list[dict[str, Any]]:
    """The traces below `folder`, in order of rank."""
    found = [json.loads(gzip.decompress(file.read_bytes())) for file in folder.rglob("rank-*.json.gz")]
    found += [json.loads(file.read_bytes()) for file in folder.rglob("rank-*[0-9].json")]
    return sorted(found, key=lambda trace: trace["tracekit"]["rank"])


def without_metadata(folder: Path, out: Path, *, spans: bool = False) -> Path:
    """The traces below `folder` as torch.profiler alone would have written them, in `out`; with `spans` those that the
    capture made stay, and only the `tracekit` key goes.
    """
    out.mkdir()
    for trace in read_traces(folder):
        rank = trace.pop("tracekit")["rank"]
        if not spans:
            events = trace["traceEvents"]
            trace["traceEvents"] = [event for event in events if not event["name"].startswith(LABEL_PREFIX)]
        (out / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    return out


def result_of(folder: Path) -> dict[str, Any]:
    """What `tracekit analyze <folder> --steps 0: --json` prints, decoded."""
    report = analyze(load(folder, options=EVERY_STEP))
    result: dict[str, Any] = json.loads(result_json(report))
    return result


def notes_of(result: dict[str, Any], *kinds: str) -> list[str]:
    """The texts of the result's notes of these kinds."""
    return [note["text"] for note in result["notes"] if note["id"] in kinds]


def settings_of(result: dict[str, Any], component: str) -> dict[str, Any]:
    """The settings of a component by name. One that differs between modules is a dict of values by module.

    All ranks must agree.
    """
    rows = [row for row in result["configuration"] if row["component"] == component]
    assert {tuple(row["ranks"]) for row in rows} <= {tuple(result["run"]["ranks"])}
    settings: dict[str, Any] = {}
    for name in dict.fromkeys(row["setting"] for row in rows):
        of_setting = [row for row in rows if row["setting"] == name]
        by_module = {module: row["value"] for row in of_setting for module in row["modules"]}
        values = {repr(row["value"]): row["value"] for row in of_setting}
        settings[name] = by_module if len(values) > 1 else of_setting[0]["value"]
    return settings


@dataclass(frozen=True)
class Job:
    """A job that records several scenarios, and what its ranks know of them."""

    out: Path
    facts: list[dict[str, Any]]
    stderr: str

    @classmethod
    def record(cls, torchrun: Launch, worker: Path, out: Path, *arguments: str, ranks: int = 2) -> Self:
        launched = torchrun(worker, out, *arguments, ranks=ranks)
        return cls(
            out, [json.loads((out / f"facts-{rank}.json").read_text()) for rank in range(ranks)], launched.stderr
        )

    def traces(self, scenario: str) -> list[dict[str, Any]]:
        return read_traces(self.out / scenario)

    def metadata(self, scenario: str) -> list[dict[str, Any]]:
        return [trace["tracekit"] for trace in self.traces(scenario)]

    def result(self, scenario: str) -> dict[str, Any]:
        return result_of(self.out / scenario)
