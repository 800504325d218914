"""Runs of any size, made of one real trace, for measuring cost.

    python -m benchmarks.measuring.big_runs OUT --seed a100_ddp_rank0_of_2.json.gz [--ranks 8] [--repeats 27]

The seed is a Kineto trace of PyTorch 2, rank 0 of 2. Its events are repeated with shifted timestamps and ids, and
written to OUT/rank<r>.json.gz in Kineto's layout. 27 repeats of the A100 trace give 269 MB and 1.09 M events a rank.
The seed has no sequence numbers of collectives: `Seq` is added beside each `Collective name`.

All ranks have the same durations, shifted by up to 0.2 ms, and few distinct names. Such a run shows what an analysis
costs, never whether its verdict is right. Hosts have 8 ranks. The ranks of further hosts have the events of the rank
with the same device on the first host, under their own header. A thousand ranks are therefore made in the time of 8.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NUMBERS = re.compile(
    r'("ts": )(?P<us>\d+)\.(?P<ns>\d{3})'
    r'|("External id": |"Record function id": |"correlation": |"Ev Idx": |"Sequence number": |"id": )(?P<id>\d+)'
    r'|("name": "ProfilerStep#)(?P<step>\d+)'
    r'|(?P<collective>"Collective name": )'
)
EVENTS_BEGIN = '"traceEvents": ['
EVENTS_END = '\n  {\n    "name": "process_name", "ph": "M"'

GAP_NS = 5_000_000  # between two repeats
JITTER_NS = 200_000
IDS_A_REPEAT = 100_000
COLLECTIVES_A_REPEAT = 1_000
STEPS_A_REPEAT = 3
RANKS_A_HOST = 8
PACKING_LEVEL = 6
GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")


class Piece(NamedTuple):
    """Text that all repeats share, and the number after it that each repeat changes."""

    text: str
    kind: str  # "ts" (nanoseconds), "id", "step" or "seq"
    number: int


class Seed(NamedTuple):
    """The text of a trace before, within and after the repeated events."""

    head: str
    events: str
    tail: str


def read_seed(path: Path) -> Seed:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    start = text.index(EVENTS_BEGIN) + len(EVENTS_BEGIN)
    end = text.index(EVENTS_END)
    return Seed(text[:start], text[start:end].rstrip().removesuffix(","), text[end:])


def as_rank(text: str, rank: int, world_size: int) -> str:
    """Return the seed's text as that of another rank: where it states rank 0 of 2, `rank` of `world_size`."""
    ranks = str(list(range(world_size)))
    replacements = {
        '"[0, 1]"': f'"{ranks}"',
        '"ranks": [0, 1]': f'"ranks": {ranks}',
        '"rank": 0': f'"rank": {rank}',
        '"world_size": 2': f'"world_size": {world_size}',
        '"pg_size": 2': f'"pg_size": {world_size}',
        '"Group size": 2': f'"Group size": {world_size}',
        '"pid": 0,': f'"pid": {rank},',
        '"device": 0,': f'"device": {rank},',
        "2910249": str(2910249 + rank),  # the process id of the seed
    }
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text


def split(events: str) -> tuple[list[Piece], str]:
    """Cut the events at every number that a repeat changes; return the pieces and the text after the last number."""
    pieces = []
    position = 0
    for match in NUMBERS.finditer(events):
        if match["us"]:
            number = int(match["us"]) * 1000 + int(match["ns"])
            pieces.append(Piece(events[position : match.start("us")], "ts", number))
        elif match["id"]:
            pieces.append(Piece(events[position : match.start("id")], "id", int(match["id"])))
        elif match["step"]:
            pieces.append(Piece(events[position : match.start("step")], "step", int(match["step"])))
        else:
            # The sequence number goes before the key, whose own text begins the next piece.
            pieces.append(Piece(events[position : match.start()] + '"Seq": ', "seq", 0))
            position = match.start()
            pieces.append(Piece(", ", "", 0))
            continue
        position = match.end()
    return pieces, events[position:]


def repeat_events(pieces: list[Piece], repeat: int, shift_ns: int) -> Iterator[str]:
    seq = repeat * COLLECTIVES_A_REPEAT
    for text, kind, number in pieces:
        yield text
        match kind:
            case "ts":
                us, ns = divmod(number + shift_ns, 1000)
                yield f"{us}.{ns:03d}"
            case "id":
                yield str(number + repeat * IDS_A_REPEAT)
            case "step":
                yield str(number + repeat * STEPS_A_REPEAT)
            case "seq":
                seq += 1
                yield str(seq)


def events_of(seed: Seed, rank: int, world_size: int, repeats: int) -> bytes:
    stamps = [int(match["us"]) * 1000 + int(match["ns"]) for match in NUMBERS.finditer(seed.events) if match["us"]]
    span_ns = max(stamps) - min(stamps) + GAP_NS
    jitter = random.Random(rank)
    pieces, rest = split(as_rank(seed.events, rank, world_size))
    text = bytearray()
    for repeat in range(repeats):
        shift_ns = repeat * span_ns + jitter.randrange(JITTER_NS)
        text += ("".join(repeat_events(pieces, repeat, shift_ns)) + rest + ",").encode()
    return bytes(text)


def make_run(out: Path, seed: Seed, *, ranks: int, repeats: int) -> list[Path]:
    """Write the run; return the paths by rank."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"rank{rank}.json.gz" for rank in range(ranks)]
    for device in range(min(ranks, RANKS_A_HOST)):
        events = events_of(seed, device, ranks, repeats)
        packed = deflate(events, zlib.Z_FULL_FLUSH)
        for rank in range(device, ranks, RANKS_A_HOST):
            head, tail = (as_rank(text, rank, ranks).encode() for text in (seed.head, seed.tail))
            checksum = zlib.crc32(tail, zlib.crc32(events, zlib.crc32(head)))
            size = len(head) + len(events) + len(tail)
            with paths[rank].open("wb") as file:
                # One gzip member, as torch writes it. Full flushes make its parts independent of each other.
                file.write(GZIP_HEADER + deflate(head, zlib.Z_FULL_FLUSH))
                file.write(packed)
                file.write(deflate(tail, zlib.Z_FINISH) + struct.pack("<II", checksum, size % (1 << 32)))
    return paths


def deflate(text: bytes, end: int) -> bytes:
    packer = zlib.compressobj(PACKING_LEVEL, wbits=-15)
    return packer.compress(text) + packer.flush(end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=Path, required=True, help="the trace to repeat")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=27)
    options = parser.parse_args()
    for path in make_run(options.out, read_seed(options.seed), ranks=options.ranks, repeats=options.repeats):
        print(path)


if __name__ == "__main__":
    main()
