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
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracekit.errors import UsageError
from tracekit.read.files.storage import TracePath

if TYPE_CHECKING:
    from tracekit.read.files.identify import TraceFile

_NUMBER = r"[-_ =:\[(]{0,2}(\d{1,7})(?![\dx])"
# rank-000003 (tracekit), rank3_trace (torchtitan), rank[3] (Primus), worker0_rank2, local_rank_0_global_rank_8
_RANK = re.compile(rf"(?<![a-z])(?:([a-z]+)[-_ ]|(global|local))?rank{_NUMBER}", re.IGNORECASE)
# A rank of one dimension of the mesh, or of a low-rank adapter, is no rank of the job.
_OTHER_RANKS = frozenset({"node", "tp", "pp", "dp", "ep", "cp", "dcp", "sp", "lora"})
# worker3 (others), profile_3 (HTA, Accelerate). In `worker-0_103`, host and process id, it is of the host's name.
_WORKER = re.compile(
    rf"(?<![a-z])(?:worker|profile|process|trainer){_NUMBER}(?![^_.]*(?:\.[a-z][^_]*)?_\d+(?:\.|$))", re.IGNORECASE
)
_NODE = re.compile(r"(?<![a-z])(?:node|host|machine|server|pod|instance|ip)[-_]?\d", re.IGNORECASE)
_NUMBERED_FOLDER = re.compile(r"(?:iteration|iter|step|epoch|window|cycle)s?[-_ ]?\d+", re.IGNORECASE)
_MOST_BETWEEN_NODES_NS = 10 * 10**9


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


def with_ranks_from(files: Sequence[TraceFile], pattern: str, folders: Sequence[TracePath]) -> list[TraceFile]:
    """Return the files; those that do not name their rank have the one that a regular expression finds in their path.

    pattern: its only group is the rank. folders: paths of files in them begin below. Raises UsageError for a pattern
    that is none, or that finds no rank.
    """
    try:
        regex = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--ranks-from {pattern}: {error}", hint="it is a regular expression of Python") from None
    if regex.groups != 1:
        raise UsageError(f"--ranks-from {pattern}: not one group", hint=r"such as 'rank(\d+)', whose group is the rank")
    names = [_path_below(file.path, folders) for file in files]
    ranks = [match[1] if (match := regex.search(name)) else None for name in names]
    if not any(rank is not None and rank.isdecimal() for rank in ranks):
        raise UsageError(f"--ranks-from {pattern}: no rank found", hint="it is searched in paths below RUN")
    return [
        replace(file, rank=int(rank), rank_from="option")
        if rank is not None and rank.isdecimal() and file.rank_from != "metadata"
        else file
        for file, rank in zip(files, ranks, strict=True)
    ]


def _path_below(path: TracePath, folders: Sequence[TracePath]) -> str:
    below = (path.as_posix().removeprefix(f"{folder.as_posix().rstrip('/')}/") for folder in folders)
    return min(below, key=len, default=path.name)


def with_global_ranks(files: Sequence[TraceFile]) -> list[TraceFile]:
    """Return the files; of those whose ranks are counted anew on each node, with the rank of the job.

    They were recorded at the same time. Their groups name as many ranks, or the names of folders or files say the node.
    """
    of_world: dict[int, list[TraceFile]] = defaultdict(list)
    for file in files:
        if file.rank_from == "name" and file.wall_clock_ns is not None and file.membership is not None:
            of_world[file.membership.world_size].append(file)
    renumbered: dict[TracePath, TraceFile] = {}
    for world_size, members in of_world.items():
        for together in _at_one_time(members):
            renumbered |= {file.path: file for file in _numbered_through(together, world_size)}
    return [renumbered.get(file.path, file) for file in files]


def _at_one_time(files: Iterable[TraceFile]) -> Iterator[list[TraceFile]]:
    ordered = sorted(files, key=lambda file: file.wall_clock_ns or 0)
    gaps = [(b.wall_clock_ns or 0) - (a.wall_clock_ns or 0) > _MOST_BETWEEN_NODES_NS for a, b in pairwise(ordered)]
    number = [sum(gaps[:i]) for i in range(len(ordered))]
    for _, group in groupby(zip(number, ordered, strict=True), key=lambda pair: pair[0]):
        yield [file for _, file in group]


def _numbered_through(files: Sequence[TraceFile], world_size: int) -> list[TraceFile]:
    local: dict[str, set[int]] = defaultdict(set)
    for file in files:
        local[_node_of(file)].add(file.rank or 0)
    count = sum(map(len, local.values()))
    root = os.path.commonpath(local)
    are_nodes = all(_NODE.search(node.removeprefix(root)) for node in local)
    world_size = world_size or count * are_nodes
    if len(set().union(*local.values())) == count or count > world_size or not (are_nodes or count == world_size):
        return []
    each, rest = divmod(world_size, len(local))
    most = max(map(max, local.values())) + 1
    on_node = most if rest or each < most else each
    first = {node: number * on_node for number, node in enumerate(sorted(local, key=natural_order))}
    return [replace(file, rank=first[_node_of(file)] + (file.rank or 0), rank_from="nothing") for file in files]


def _node_of(file: TraceFile) -> str:
    """Return what comes before the rank in the path of a file."""
    match = _rank_match(file.path.name) or _WORKER.search(file.path.name)
    return f"{folder_of(file)}/{file.path.name[: match.start() if match else None]}"


def with_ranks(files: Sequence[TraceFile]) -> tuple[list[TraceFile], list[TraceFile]]:
    """Return the files of one job, each with a rank, and those that are of none of its ranks.

    A launcher or a coordinator has no rank, no collective and no event of a device, and runs beside ranks.
    """
    apart = [f for f in files if f.rank is None and (known := f.membership) and known.is_of_host and not known.groups]
    apart = apart if any(map(_is_of_rank, files)) else []
    apart.sort(key=lambda file: natural_order(str(file.path)))
    files = sorted((f for f in files if f not in apart), key=lambda f: (natural_order(f.path.name), str(f.path)))
    if any(file.rank is None for file in files):
        # Beside a master, the first worker is not the first rank.
        files = [replace(f, rank=None) if f.rank_from == "name" and not _rank_match(f.path.name) else f for f in files]
    return list(_numbered(files)), apart


def _is_of_rank(file: TraceFile) -> bool:
    known = file.membership
    return file.rank_from == "metadata" or (known is not None and (known.has_gpu or bool(known.groups)))


def _numbered(files: Sequence[TraceFile]) -> Iterator[TraceFile]:
    """Yield the files, of which those without a rank get a free one, and windows of a process the same."""
    taken = {file.rank for file in files}
    in_folders = _ranks_of_folders(files, taken)
    rank_of_process: dict[object, int] = {}
    for file in sorted(files, key=lambda file: natural_order(str(file.path))):
        if file.rank is not None:
            yield file
            continue
        process = process_of(file)
        if process not in rank_of_process:
            allowed = sorted(file.membership.candidates) if file.membership is not None else []
            first = in_folders.get(file.path)
            choices = (*((first,) if first is not None else ()), *allowed, *range(len(files) + len(taken)))
            rank_of_process[process] = next(rank for rank in choices if rank not in taken)
            taken.add(rank_of_process[process])
        yield replace(file, rank=rank_of_process[process], rank_from="nothing")


def _ranks_of_folders(files: Sequence[TraceFile], taken: set[int | None]) -> dict[TracePath, int]:
    """Return the rank that the folder of each file without a rank is named after, if all are, each after another."""
    unknown = [file for file in files if file.rank is None]
    root = os.path.commonpath([folder_of(file) for file in files]) if len(unknown) > 1 else ""
    below = {file.path: folder_of(file).relative_to(root).parts for file in unknown} if root else {}
    named = {path: match for path, parts in below.items() for part in parts if (match := _rank_match(part))}
    ranks = {path: int(match.groups()[-1]) for path, match in named.items()}
    processes = {process_of(file) for file in unknown}
    is_clear = len(ranks) == len(unknown) and len(set(ranks.values()) - taken) == len(processes)
    return ranks if is_clear else {}
