"""Which rank the files of a job of another tool are of, by their names and by the groups that their events name.

What a header says counts most, then a group or groups that only one rank is in, then names. A name says a rank in the
ways of common tools: `rank` says more than `worker`, and `global_rank` more than both. `local_rank` and other ranks
that are equal on several nodes are numbered through the nodes. The others get the free ranks that their groups allow,
in the natural order of their paths, in which 3 comes before 10.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracekit.errors import UsageError
from tracekit.read.files.storage import TracePath

if TYPE_CHECKING:
    from tracekit.read.files.identify import TraceFile

_RANK_NUMBER = re.compile(r"[0-9]{1,7}")
_NUMBER = r"[-_ =:\[(]{0,2}(\d{1,7})(?![\dx])"
# rank-000003 (tracekit), rank3_trace (torchtitan), rank[3] (Primus), worker0_rank2, local_rank_0_global_rank_8
_RANK = re.compile(rf"(?<![a-z])(?:([a-z]+)[-_ ]|(global|local))?rank\.?{_NUMBER}", re.IGNORECASE)
# A rank of one dimension of the mesh, or of a low-rank adapter, is no rank of the job.
_OTHER_RANKS = frozenset({"node", "tp", "pp", "dp", "ep", "cp", "dcp", "sp", "mp", "parallel", "lora"})
# worker3 (others), profile_3 (HTA, Accelerate). In `worker-0_103`, host and process id, it is of the host's name.
_WORKER = re.compile(
    rf"(?<![a-z])(?:worker|profile|process|trainer){_NUMBER}(?![^_.]*(?:\.[a-z][^_]*)?_\d+(?:\.|$))", re.IGNORECASE
)
_MASTER = re.compile(r"(?<![a-z])(?:master|chief|leader|head)(?![a-z])", re.IGNORECASE)
_NODE = re.compile(r"(?<![a-z])(?:node|host|machine|server|pod|instance|ip)(?:[-_]?rank)?[-_=\[]{0,2}\d", re.IGNORECASE)
_NUMBERED_FOLDER = re.compile(r"(?:iteration|iter|step|epoch|window|cycle)s?[-_ ]?\d+", re.IGNORECASE)
MOST_BETWEEN_NODES_NS = 10 * 10**9
"""By which ranks of different nodes begin a recording of one time; their clocks may differ by seconds."""


def rank_in_name(path: TracePath | PurePath) -> int | None:
    """Return the rank that the file is named after, in the ways of common tools; None for other names."""
    match = _rank_match(path.name) or _WORKER.search(path.name)
    return int(match.groups()[-1]) if match else None


def _rank_match(name: str) -> re.Match[str] | None:
    matches = {(match[1] or match[2] or "").lower(): match for match in _RANK.finditer(name)}
    ranked = sorted(matches.keys() - _OTHER_RANKS, key=lambda word: (word != "global", word == "local"))
    return matches[ranked[0]] if ranked else None


def folder_of(file: TraceFile) -> PurePath:
    """Return the folder of a file; folders that only number windows count as the folder above them."""
    return PurePath(*(part for part in file.path.absolute().parent.parts if not _NUMBERED_FOLDER.fullmatch(part)))


def process_of(file: TraceFile) -> object:
    """Return a key that is equal for windows of one process.

    tensorboard_trace_handler names them `host_pid.<time>.pt.trace.json`, in one folder.
    """
    if file.process is None:
        return file.path
    return folder_of(file), file.path.name.partition(".")[0], file.process


def natural_order(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts texts by the numbers in them, as people do."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def with_ranks_from(files: Sequence[TraceFile], pattern: str) -> list[TraceFile]:
    """Return the files; those that do not name their rank have the one that a regular expression finds in their path.

    pattern: its only group is the rank; where it matches several times, the last counts. Raises UsageError for a
    pattern that is none, or that finds no rank.
    """
    try:
        regex = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--ranks-from {pattern}: {error}", hint="it is a regular expression of Python") from None
    found = {file.path: regex.findall(file.path.as_posix()) for file in files} if regex.groups == 1 else {}
    ranks = {path: int(texts[-1]) for path, texts in found.items() if texts and _RANK_NUMBER.fullmatch(texts[-1])}
    if not ranks:
        hint = r"its only group is the rank, in the path of a file, as in 'rank(\d+)'"
        raise UsageError(f"--ranks-from {pattern}: it finds no rank", hint=hint)
    return [
        replace(file, rank=ranks[file.path], rank_from="option")
        if file.path in ranks and file.rank_from != "metadata"
        else file
        for file in files
    ]


def with_global_ranks(files: Sequence[TraceFile]) -> list[TraceFile]:
    """Return the files; of those whose ranks are counted anew on each node, with the rank of the job.

    They were recorded at the same time. Their groups name as many ranks, or the names of folders or files say the node.
    """
    of_world: dict[int, list[TraceFile]] = defaultdict(list)
    for file in files:
        if file.rank_from == "name" and file.wall_clock_ns is not None and file.membership is not None:
            of_world[file.known_world_size].append(file)
    renumbered: dict[TracePath, TraceFile] = {}
    for world_size, members in of_world.items():
        for together in _at_one_time(members):
            renumbered |= {file.path: file for file in _numbered_through(together, world_size)}
    return [renumbered.get(file.path, file) for file in files]


def _at_one_time(files: Iterable[TraceFile]) -> Iterator[list[TraceFile]]:
    ordered = sorted(files, key=lambda file: file.wall_clock_ns or 0)
    gaps = [(b.wall_clock_ns or 0) - (a.wall_clock_ns or 0) > MOST_BETWEEN_NODES_NS for a, b in pairwise(ordered)]
    number = accumulate(gaps, initial=0)
    for _, group in groupby(zip(number, ordered, strict=False), key=lambda pair: pair[0]):
        yield [file for _, file in group]


def _numbered_through(files: Sequence[TraceFile], world_size: int) -> list[TraceFile]:
    processes = {process_of(file) for file in files}
    node: dict[TracePath, str] = {}  # what comes before the rank in the path
    local: dict[str, set[int]] = defaultdict(set)
    for file in files:
        match = _rank_match(file.path.name) or _WORKER.search(file.path.name)
        node[file.path] = f"{folder_of(file)}/{file.path.name[: match.start() if match else None]}"
        local[node[file.path]].add(file.rank or 0)
    root = os.path.commonpath(local)
    are_nodes = all(_NODE.search(name.removeprefix(root)) for name in local)
    count, size = sum(map(len, local.values())), world_size or len(processes) * are_nodes
    is_clear = count == len(processes) > len(set().union(*local.values()))
    if not is_clear or (count != size and not (are_nodes and count < size)):
        return []
    most, (each, rest) = max(map(max, local.values())) + 1, divmod(size, len(local))
    on_node = most if rest or each < most else each
    first = {name: number * on_node for number, name in enumerate(sorted(local, key=natural_order))}
    return [replace(f, rank=first[node[f.path]] + (f.rank or 0), rank_from="nothing") for f in files]


def with_ranks(files: Sequence[TraceFile]) -> tuple[list[TraceFile], list[TraceFile]]:
    """Return the files of one job, each with a rank, and those that are of none of its ranks.

    A launcher or a coordinator has no rank, no collective and no event of a device, and runs beside ranks.
    """
    known = [file.membership for file in files if file.membership is not None]
    are_ranks = len(known) < len(files) or any(each.is_of_rank for each in known)
    apart = [f for f in files if are_ranks and f.rank is None and f.membership and not f.membership.is_of_rank]
    apart.sort(key=lambda file: natural_order(str(file.path)))
    files = [file for file in files if file not in apart]
    if any(file.rank is None and _MASTER.search(file.path.name) for file in files):
        # Beside a master, the first worker is not the first rank.
        files = [replace(f, rank=None) if f.rank_from == "name" and not _rank_match(f.path.name) else f for f in files]
    return list(_numbered(files)), apart


def _numbered(files: Sequence[TraceFile]) -> Iterator[TraceFile]:
    """Yield the files, of which those without a rank get a free one, and windows of a process the same."""
    taken = {file.rank for file in files}
    said = _ranks_of_folders(files, taken)
    rank_of_process = {process_of(file): file.rank for file in files if file.rank is not None}
    for file in sorted(files, key=lambda file: natural_order(str(file.path))):
        if file.rank is not None:
            yield file
            continue
        process = process_of(file)
        if process not in rank_of_process:
            allowed = [said[process]] if said else sorted(_candidates(file))
            choices = (*allowed, *range(len(files) + len(taken)))
            rank_of_process[process] = next(rank for rank in choices if rank not in taken)
            taken.add(rank_of_process[process])
        yield replace(file, rank=rank_of_process[process], rank_from="nothing")


def _candidates(file: TraceFile) -> frozenset[int]:
    return file.membership.candidates if file.membership is not None else frozenset()


def _ranks_of_folders(files: Sequence[TraceFile], taken: set[int | None]) -> dict[object, int]:
    """Return the rank after which the folder of each process is named that has none; none unless that is so of all."""
    unknown = {process_of(file): file for file in files if file.rank is None}
    if len(unknown) < 2:
        return {}
    root = len(os.path.commonpath([folder_of(file) for file in files]))
    ranks: dict[object, int] = {}
    for process, file in unknown.items():
        named = filter(None, map(_rank_match, str(file.path.absolute())[root:].split("/")[:-1]))
        ranks.update((process, int(match[3])) for match in named)
    may_be = all(rank in (_candidates(unknown[process]) or {rank}) for process, rank in ranks.items())
    return ranks if may_be and len(set(ranks.values()) - taken) == len(unknown) else {}
