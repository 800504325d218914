"""What the events of a file say of the rank that recorded them, where its header does not name it.

The text is searched and not decoded: the arguments of collectives name the ranks of their groups.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tracekit.model.metadata import MAX_RANKS
from tracekit.read.files.inflate import TextChunks
from tracekit.read.files.storage import TracePath

_MOST_BYTES = 64 << 20  # Kineto writes the host's events first, and a step has them of all groups
_OVERLAP_BYTES = 8 << 10  # of pieces of the text: more than an argument has
_RANKS, _SIZE = b'"Process Group Ranks"', b'"Group size"'
_VALUE = re.compile(rb'\s*:\s*"?([0-9\[\], .]{1,4096})(?=["}\r\n\t])')
_NUMBER = re.compile(rb"[0-9]{1,7}(?![0-9])")
_LABELS = b'"process_labels"'  # Kineto labels the one process that it records with CPU
_LABELLED_CPU = re.compile(rb'[^{}]*"pid"\s*:\s*"?([^",]+)[^{}]*\{\s*"labels"\s*:\s*"CPU"')
_LAUNCHES = (b"LaunchKernel", b"GraphLaunch")
_ON_HOST = rb'cpu_|[Oo]perator|user_annotation|python_|Trace|overhead|fwd|forward|ac2g|cuda_|hip_|Runtime|"'
_OFF_HOST = re.compile(rb'"cat"\s*:\s*"(?!' + _ON_HOST + rb')[^"]*"')


@dataclass(frozen=True, kw_only=True)
class Membership:
    """To which groups the rank of a file belongs.

    Attributes:
        groups: The ranks of each group in whose collectives it took part. A list that torch shortened is left out.
        world_size: Of the job, at least; 0 if no group is named.
        has_device: The file has launches, or events of categories that are not known to be of the host.
        processes: How many processes of a host it labels: several in a merged trace.
    """

    groups: frozenset[tuple[int, ...]]
    world_size: int
    has_device: bool
    processes: int

    @property
    def is_of_rank(self) -> bool:
        """Whether it shows a device or a group."""
        return self.has_device or self.world_size > 0

    @property
    def candidates(self) -> frozenset[int]:
        """The ranks that it may be: those of all its groups. None of them if nothing is known."""
        return frozenset.intersection(*map(frozenset, self.groups)) if self.groups else frozenset()


def membership_of(path: TracePath) -> Membership:
    """Return what the events of a file say. Raises InputError when it cannot be read."""
    values: dict[bytes, set[bytes]] = {key: set() for key in (_RANKS, _SIZE)}
    has_device = False
    processes: set[bytes] = set()
    text, size = b"", 0
    for chunk in TextChunks(path):
        size += len(chunk)
        text = text[-_OVERLAP_BYTES:] + chunk
        has_device = has_device or any(launch in text for launch in _LAUNCHES) or _OFF_HOST.search(text) is not None
        labelled = (_LABELLED_CPU.match(piece) for piece in text.split(_LABELS)[1:])
        processes.update(match.group(1) for match in labelled if match)
        for key in (key for key in values if key in text):
            values[key].update(match.group(1) for piece in text.split(key)[1:] if (match := _VALUE.match(piece)))
        if size > _MOST_BYTES:
            has_device = True  # of what follows it is not known
            break
    ranks = {value: tuple(map(int, _NUMBER.findall(value))) for value in values[_RANKS]}
    sizes = [int(number) for value in values[_SIZE] for number in _NUMBER.findall(value)]
    sizes += [max(group) + 1 for group in ranks.values() if group]
    return Membership(
        groups=frozenset(group for value, group in ranks.items() if group and b"..." not in value),
        world_size=max((size for size in sizes if size <= MAX_RANKS), default=0),
        has_device=has_device,
        processes=len(processes),
    )
