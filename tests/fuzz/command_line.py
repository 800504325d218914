"""Analyse folders of eight good ranks and one mutated file, by the command line in this process.

    python -m tests.fuzz.command_line --minutes 5

The steps of the eight ranks have the numbers that they have without the ninth. If the ninth rank is not there, a note
names its file. No error is one of tracekit itself, and nothing but the result is written.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.builders import TraceBuilder
from tests.fuzz.fuzzing import Finding, fuzz, parser
from tests.fuzz.mutations import corpus_texts, damaged, mutant_of, packed
from tracekit.cli import cli

_GOOD = 8
_STEPS = 3
_MOST_BYTES = 64 << 20


def main() -> int:
    options = parser(__doc__).parse_args()
    os.environ.pop("TRACEKIT_LIMITS", None)
    work = options.folder.absolute() / "good"
    work.mkdir(parents=True, exist_ok=True)
    good = [_good_rank(rank).text() for rank in range(_GOOD + 1)]
    seeds = [*[good[_GOOD]] * 6, *corpus_texts()]
    cache = work / "cache"
    for rank, text in enumerate(good[:_GOOD]):
        path = work / f"rank{rank}.json"
        path.write_bytes(text)
        os.utime(path, (1_700_000_000, 1_700_000_000))  # so old that the cache trusts it
    expected = _rows(_analyse(work, cache))

    def check(rng: random.Random, folder: Path) -> str:
        content = mutant_of(rng.choice(seeds), rng)
        if rng.random() < 0.3:
            content = packed(content, rng)
        if rng.random() < 0.3:
            content = damaged(content, rng)
        for rank in range(_GOOD):
            (folder / f"rank{rank}.json").hardlink_to(work / f"rank{rank}.json")
        bad = folder / rng.choice(("rank8.json", "rank8.json.gz", "trace.json", "rank3_again.json"))
        bad.write_bytes(content)
        before = sorted(folder.iterdir())
        result = _analyse(folder, cache)
        chosen = result["run"]
        started_before = [other for other in chosen["other_runs"] if other["ranks"] == _GOOD]
        if started_before and result["steps"][0]["start_ns"] > started_before[0]["start_ns"]:
            _compare(_analyse(folder, cache, "--run", started_before[0]["run_id"]), expected, bad)
            return "taken for a newer job"
        _compare(result, expected, bad)
        if sorted(folder.iterdir()) != before:
            raise Finding("files were added or removed")
        return "analysed" if str(_GOOD) in {str(rank) for rank in result["run"]["ranks"]} else "without the ninth rank"

    return fuzz("command_line", check, options)


def _good_rank(rank: int) -> TraceBuilder:
    """Return a rank of a GPU job whose compute grows with the rank."""
    trace = TraceBuilder(rank=rank, world_size=_GOOD + 1)
    for step in range(_STEPS):
        at_us = step * 200
        trace.step(step, at_us, 190)
        trace.op("aten::mm", at_us + 2, 20)
        trace.kernel("gemm", at_us + 10, 60 + rank, launched_at=at_us + 4)
        ranks = list(range(_GOOD + 1))
        trace.nccl("all_reduce", at_us + 75, 100, launched_at=at_us + 30, group=ranks, sequence=step + 1)
    return trace


def _analyse(folder: Path, cache: Path, *options: str) -> dict[str, Any]:
    output = cache.with_name("result.json")  # click keeps what a test's command prints
    arguments = ["analyze", str(folder), "-o", str(output), "--force", "--jobs", "1", "--cache-dir", str(cache)]
    arguments += options
    outcome = CliRunner().invoke(cli, arguments, env={"TRACEKIT_DEBUG": "1"})
    if outcome.exit_code != 0:
        raise Finding(f"exit {outcome.exit_code}: {outcome.stderr[-3000:]}")
    size_bytes = output.stat().st_size + len(outcome.stdout_bytes)
    if size_bytes > _MOST_BYTES:
        raise Finding(f"{size_bytes} bytes of output")
    result: dict[str, Any] = json.loads(output.read_bytes())
    return result


def _rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["steps"] if row["rank"] < _GOOD]


def _compare(result: dict[str, Any], expected: list[dict[str, Any]], bad: Path) -> None:
    actual = _rows(result)
    named = any(bad.name in (note["file"] or "") or bad.name in note["text"] for note in result["notes"])
    # A rank may begin to record, and wait, before all others: then no rank's first step counts, as a note says.
    is_first_left_out = any(note["id"] == "first-step" and bad.name in note["text"] for note in result["notes"])
    if actual != expected and not (is_first_left_out and actual == [row for row in expected if row["step"]]):
        wrong = [(row["rank"], row["step"]) for row in expected if row not in actual]
        raise Finding(f"other numbers in {wrong}; the note names the file: {named}")
    if _GOOD not in result["run"]["ranks"] and not named:
        raise Finding("the file is not used, and no note names it")
    bugs = [note["text"] for note in result["notes"] if "a bug in tracekit" in note["text"]]
    if bugs:
        raise Finding("; ".join(bugs))


if __name__ == "__main__":
    sys.exit(main())
