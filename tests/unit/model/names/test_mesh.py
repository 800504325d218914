"""The parallelism that names of mesh dimensions and descriptions of groups stand for."""

from __future__ import annotations

import pytest

from tracekit.model.names.mesh import dimension_of_group, parallelism_of_group
from tracekit.model.spans import module_span, parse_module_span


@pytest.mark.parametrize(
    ("description", "parallelism"),
    [
        ("mesh_tp", "tp"),
        ("mesh_tp#2", "tp"),
        ("mesh_dp_shard", "dp"),
        ("mesh_data_parallel", "dp"),
        ("tp_group", "tp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("mesh_dim_0", None),
        ("mesh_dp_tp", None),
        ("default_pg", None),
        ("undefined", None),
        ("group", None),
        ("", None),
    ],
)
def test_a_usual_description_gives_the_parallelism_of_a_group(description: str, parallelism: str | None) -> None:
    assert parallelism_of_group(description) == parallelism


@pytest.mark.parametrize(
    ("description", "dimension"),
    [
        ("mesh_dp_shard", "dp_shard"),
        ("mesh_dp_shard_cp#2", "dp_shard_cp"),
        ("mesh_mine", "mine"),
        ("mesh_dim_0", None),
        ("mesh_default", None),
        ("dp_shard", None),
        ("mesh_", None),
        ("", None),
    ],
)
def test_a_mesh_names_the_dimension_of_its_groups(description: str, dimension: str | None) -> None:
    assert dimension_of_group(description) == dimension


@pytest.mark.parametrize("module", ["", "blocks.0.up"])
def test_a_module_span_names_its_module(module: str) -> None:
    assert parse_module_span(module_span(module)) == module


def test_other_spans_name_no_module() -> None:
    assert parse_module_span("tracekit.wait") is None
