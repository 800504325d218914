"""The settings of one rank have the names under which a program sets them."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import TraceBuilder
from tracekit.explain.configuration import recorded_settings
from tracekit.model.metadata import CaptureMetadata, PipelineLayout, Precision, Settings, SettingValue


def metadata(**fields: object) -> CaptureMetadata:
    recorded = TraceBuilder().step(0, 0, 10).capture().metadata
    assert recorded is not None
    return replace(recorded, **fields)


def values(component: str, **fields: object) -> dict[str, SettingValue]:
    (settings,) = (each for each in recorded_settings(metadata(**fields)) if each.component == component)
    return settings.values


def test_without_a_capture_nothing_is_known() -> None:
    assert recorded_settings(None) == ()


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
