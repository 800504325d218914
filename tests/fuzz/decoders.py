"""Decode mutated traces with both decoders: they say the same, and nothing but an error for users is raised.

    python -m tests.fuzz.decoders --minutes 5 TRACE...
    python -m tests.fuzz.sanitized build/sanitized tests.fuzz.decoders --minutes 5 TRACE...

Mutants are of excerpts of the traces and of the files in `corpus/`. Some are packed and damaged again. Some are read
with small limits and in small chunks.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.fuzz.sanitized import use_sanitized

use_sanitized()

from tests.fuzz.fuzzing import Finding, fuzz, parser  # noqa: E402
from tests.fuzz.mutations import corpus_texts, damaged, excerpt, mutant_of, packed, read_text  # noqa: E402
from tests.unit.read.decode.decoders import differences, native_decoder, outcome  # noqa: E402
from tracekit.limits import VARIABLE  # noqa: E402
from tracekit.read.decode import portable  # noqa: E402
from tracekit.read.decode.written_events import from_decoded  # noqa: E402
from tracekit.read.files import inflate  # noqa: E402
from tracekit.read.files.identify import identify, identify_fast  # noqa: E402

_SMALL_LIMITS = ["events=3", "keys_bytes=200", "text_bytes=2000", "keys_bytes=1000 events=8", ""]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("traces", nargs="*", type=Path)
    arguments.add_argument("--events", type=int, default=12, help="of each excerpt")
    options = arguments.parse_args()
    native = native_decoder()
    traces = [read_text(trace) for trace in options.traces]
    seeds = corpus_texts()

    def check(rng: random.Random, folder: Path) -> str:
        text = (
            rng.choice(seeds) if not traces or rng.random() < 0.3 else excerpt(rng.choice(traces), options.events, rng)
        )
        text = mutant_of(text, rng)
        content = text
        if rng.random() < 0.2:
            content = packed(text, rng)
            content = damaged(content, rng) if rng.random() < 0.5 else content
        path = folder / "rank0.json"
        path.write_bytes(content)
        small = rng.random() < 0.3
        limits = rng.choice(_SMALL_LIMITS) if small else ""
        with (
            patch.dict(os.environ, {VARIABLE: limits}),
            patch.object(inflate, "CHUNK_BYTES", rng.choice((200, 1000)) if small else inflate.CHUNK_BYTES),
        ):
            for look in (identify, identify_fast):
                outcome(look, path)
            return _compare(native, path)

    return fuzz("decoders", check, options)


def _compare(native: Any, path: Path) -> str:
    actual = outcome(native.decode, path, extra_args=True)
    expected = outcome(portable.decode, path, extra_args=True)
    if actual is None:
        return "refused by both" if isinstance(expected, str) else "left to the portable decoder"
    if different := differences(actual, expected):
        raise Finding(f"decoders differ in {', '.join(different)}")
    written = native.decode_written(path)
    if written is None:
        raise Finding("decode understands it, decode_written does not")
    again = from_decoded(expected)
    if len(written) < len(again):
        raise Finding(f"decode_written has {len(written)} events, decode {len(again)}")
    return "understood by both"


if __name__ == "__main__":
    sys.exit(main())
