"""The standard library's JSON of the metadata: to the byte what msgspec writes, and what msgspec reads again."""

from __future__ import annotations

import gzip

import msgspec
import pytest

from tests.places import ROOT
from tracekit.capture.job.run_agreement import AgreedRun
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.metadata.json_text import decode, encode


def test_metadata_are_written_as_msgspec_writes_them() -> None:
    recorded = sorted((ROOT / "tests" / "data").rglob("*rank*.json.gz"))
    keys = [msgspec.json.decode(gzip.decompress(file.read_bytes()), type=dict[str, msgspec.Raw]) for file in recorded]
    written = [msgspec.json.decode(trace["tracekit"], type=CaptureMetadata) for trace in keys if "tracekit" in trace]
    assert len(written) >= 2
    for metadata in written:
        assert encode(metadata) == msgspec.json.encode(metadata)
    assert encode("ä\n\x7f") == msgspec.json.encode("ä\n\x7f")


def test_a_record_is_read_again_and_what_is_none_is_refused() -> None:
    run = AgreedRun(run_id="a", attempt=2)
    assert decode(encode(run), AgreedRun) == run
    assert decode('{"run_id": "a", "attempt": 2, "of a later version": 1}', AgreedRun) == run
    for text in ("{", "[]", "{}", "1"):
        with pytest.raises(ValueError, match=r".+"):
            decode(text, AgreedRun)
