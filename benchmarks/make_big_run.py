"""Make a run of any size out of one real trace, to measure cost with.

    python benchmarks/make_big_run.py OUT --seed a100_ddp_rank0_of_2.json.gz [--ranks 8] [--repeat 27] [--gz]

Comes in: a Kineto trace of PyTorch 2, rank 0 of 2. Goes out: OUT/rank<r>.json[.gz] in Kineto's own layout, the events
repeated with shifted timestamps and ids; 27 repeats of the A100 trace give 269 MB and 1.09 M events a rank. `Seq` is
added beside each `Collective name`, which the seed lacks.

All ranks carry the same durations, shifted by up to 0.2 ms, and few distinct names: the result says what an analysis
costs, never whether its verdict is right.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
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


class Piece(NamedTuple):
    """Text that stays, and the number after it that every repeat changes."""

    text: str
    kind: str  # "ts" (nanoseconds), "id", "step" or "seq"
    number: int


class Seed(NamedTuple):
    """The text of a trace: before, within and after the repeated events."""

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
    """The seed's text with the names of rank 0 of 2 replaced."""
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
    """Cut the events once, at every number that a repeat changes; also the text after the last of them."""
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


def repeated(pieces: list[Piece], repeat: int, shift_ns: int) -> Iterator[str]:
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


def make_run(out: Path, seed: Seed, *, ranks: int, repeats: int, compressed: bool) -> list[Path]:
    """Write the run; the paths, by rank."""
    stamps = [int(match["us"]) * 1000 + int(match["ns"]) for match in NUMBERS.finditer(seed.events) if match["us"]]
    span_ns = max(stamps) - min(stamps) + GAP_NS
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in range(ranks):
        jitter = random.Random(rank)
        pieces, rest = split(as_rank(seed.events, rank, ranks))
        path = out / f"rank{rank}.json{'.gz' if compressed else ''}"
        with gzip.open(path, "wt", compresslevel=6) if compressed else path.open("w") as file:
            file.write(as_rank(seed.head, rank, ranks))
            for repeat in range(repeats):
                shift_ns = repeat * span_ns + jitter.randrange(JITTER_NS)
                file.write("".join(repeated(pieces, repeat, shift_ns)) + rest + ",")
            file.write(as_rank(seed.tail, rank, ranks))
        paths.append(path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=Path, required=True, help="the trace to repeat")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=27)
    parser.add_argument("--gz", action="store_true")
    options = parser.parse_args()
    seed = read_seed(options.seed)
    for path in make_run(options.out, seed, ranks=options.ranks, repeats=options.repeat, compressed=options.gz):
        print(path)


if __name__ == "__main__":
    main()
