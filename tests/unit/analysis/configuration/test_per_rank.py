"""The settings of one rank have the names under which a program sets them."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.configuration.per_rank import recorded_settings
from tracekit.model.metadata import CaptureMetadata, DdpModule, PipelineLayout, Precision, Settings, SettingValue

OLD = DdpModule(
    module="Network", bucket_cap_bytes=25 << 20, static_graph=True, find_unused=False, rebuilt=True, buckets=[]
)


def metadata(**fields: object) -> CaptureMetadata:
    recorded = TraceBuilder().step(0, 0, 10).capture().metadata
    assert recorded is not None
    return msgspec.structs.replace(recorded, **fields)


def values(component: str, **fields: object) -> dict[str, SettingValue]:
    (settings,) = (each for each in recorded_settings(metadata(**fields)) if each.component == component)
    return settings.values


def test_without_a_capture_nothing_is_known() -> None:
    assert recorded_settings(None) == ()


@pytest.mark.parametrize(("size_bytes", "expected"), [(25 << 20, 25), (31457, 31457 / 2**20)])
def test_ddp_s_limit_is_in_mib(size_bytes: int, expected: float) -> None:
    module = msgspec.structs.replace(OLD, bucket_cap_bytes=size_bytes)
    assert values("ddp", ddp=[module])["bucket_cap_mb"] == expected


def test_what_an_older_capture_did_not_know_is_left_out() -> None:
    assert values("ddp", ddp=[OLD]) == {"bucket_cap_mb": 25, "static_graph": True, "find_unused_parameters": False}
    newer = msgspec.structs.replace(OLD, comm_hook="none", gradient_as_bucket_view=False, broadcast_buffers=True)
    assert values("ddp", ddp=[newer]).keys() > {"comm_hook", "gradient_as_bucket_view", "broadcast_buffers"}


def test_a_pipeline_and_number_formats_are_settings_as_well() -> None:
    layout = PipelineLayout(schedule="1f1b", stages=4, virtual_stages=1, microbatches=8, stage_ids=[2])
    expected = {"schedule": "1f1b", "n_microbatches": 8, "stages": 4, "stages_per_rank": 1}
    assert values("pipeline", pipeline=layout) == expected
    precision = Precision(autocast=["bfloat16"], parameters=["float32", "int64"], scaled=False)
    assert values("precision", precision=precision) == {
        "parameters": "float32, int64",
        "autocast": "bfloat16",
        "grad_scaler": False,
    }


def test_sharding_comes_before_the_compiler() -> None:
    settings = [Settings(component=name, values={"a": 1}) for name in ("compile", "zero", "fsdp2")]
    components = [each.component for each in recorded_settings(metadata(settings=settings))]
    assert components == ["fsdp2", "zero", "compile"]
