"""Settings in the form of the metadata."""

from __future__ import annotations

from tracekit.capture.observers.compiled import dtype_name, settings_by_values


def test_modules_with_equal_values_are_together() -> None:
    settings = settings_by_values("fsdp2", [("", {"a": False}), ("x", {"a": True}), ("y", {"a": True})])
    assert [(each.component, each.modules, each.values) for each in settings] == [
        ("fsdp2", [""], {"a": False}),
        ("fsdp2", ["x", "y"], {"a": True}),
    ]


def test_data_types_have_no_prefix() -> None:
    assert (dtype_name("torch.bfloat16"), dtype_name(None)) == ("bfloat16", None)
