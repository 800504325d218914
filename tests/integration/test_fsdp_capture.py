"""Ranks of FSDP1 and FSDP2 over Gloo, recorded: what the report says of modules is what training did."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Job, Launch, result_of, settings_of, without_metadata
from tracekit.model.names.modules import clean_module_name

WORKER = Path(__file__).with_name("fsdp_worker.py")
STEPS = 2

FSDP2 = ["fsdp2", "fsdp2_prefetch", "fsdp2_checkpointed", "fsdp2_compiled"]
FSDP1 = ["fsdp1", "fsdp1_prefetch"]
HYBRID = ["fsdp2_hybrid", "fsdp1_hybrid"]


class FsdpJob(Job):
    def result(self, scenario: str) -> dict[str, Any]:
        return _result(self.out / scenario)

    def plain_result(self, scenario: str) -> dict[str, Any]:
        """Of the same traces without what tracekit adds."""
        plain = self.out / f"{scenario}_plain"
        return _result(plain if plain.exists() else without_metadata(self.out / scenario, plain))


_result = cache(result_of)


@pytest.fixture(scope="module")
def job(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> FsdpJob:
    return FsdpJob.record(torchrun, WORKER, tmp_path_factory.mktemp("fsdp"), ranks=2)


@pytest.fixture(scope="module")
def hybrid(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> FsdpJob:
    return FsdpJob.record(torchrun, WORKER, tmp_path_factory.mktemp("hybrid"), "hybrid", ranks=4)


def units(facts: dict[str, Any]) -> dict[str, int]:
    """Name of each wrapped module, from the model's own tree, to bytes of the parameters it is the innermost for."""
    names = sorted(map(clean_module_name, facts["modules"]), key=len, reverse=True)
    size_bytes = dict.fromkeys(names, 0)
    for parameter, size in facts["parameter_bytes"].items():
        size_bytes[next(name for name in names if not name or parameter.startswith(f"{name}."))] += size
    return size_bytes


def exposed_by_kind(rows: list[dict[str, Any]]) -> dict[tuple[int, str], int]:
    """Exposed time of each rank and kind."""
    total: Counter[tuple[int, str]] = Counter()
    for row in rows:
        total[row["rank"], row["kind"]] += row["exposed_ns"]
    return dict(total)


@pytest.mark.parametrize("kind", ["fsdp1", "fsdp2"])
def test_losses_are_bit_equal_with_and_without_the_probe(job: FsdpJob, kind: str) -> None:
    for facts in job.facts:
        assert facts[kind]["losses"] == facts[f"{kind}_plain"]["losses"]
        assert len(set(facts[kind]["losses"])) == 5


@pytest.mark.parametrize("scenario", [*FSDP2, *FSDP1])
def test_modules_are_the_wrapped_ones_with_the_bytes_of_their_parameters(job: FsdpJob, scenario: str) -> None:
    expected = units(job.facts[0][scenario])
    assert set(expected) == {"", "blocks.0", "blocks.1", "blocks.1.mlp", "blocks.2"}

    for metadata in job.metadata(scenario):
        assert {unit["module"]: unit["unit_bytes"] for unit in metadata["fsdp"]} == expected
        assert len(metadata["fsdp"]) == len(expected)
        assert metadata["strategies"] == [scenario.partition("_")[0]]
        assert metadata["notes"] == []
    rows = job.result(scenario)["fsdp"]
    assert {row["module"] for row in rows} == set(expected)
    assert {row["module"]: row["unit_bytes"] for row in rows} == expected
    assert all(row["size_bytes"] == row["count"] * row["unit_bytes"] for row in rows)


@pytest.mark.parametrize("scenario", [*FSDP2, *FSDP1])
def test_each_module_gathers_forward_and_backward_and_reduces_once_a_step(job: FsdpJob, scenario: str) -> None:
    """The outermost stays gathered from forward to backward."""
    modules = set(units(job.facts[0][scenario]))
    forward = {(module, "all_gather", "forward"): STEPS for module in modules}
    backward = {(module, "all_gather", "backward"): STEPS for module in modules - {""}}
    reduced = {(module, "reduce_scatter", "backward"): STEPS for module in modules}
    for rank in range(2):
        rows = [row for row in job.result(scenario)["fsdp"] if row["rank"] == rank]
        assert {
            (row["module"], row["kind"], row["phase"]): row["count"] for row in rows
        } == forward | backward | reduced
        assert all((row["prefetch_ns"] is not None) == (row["kind"] == "all_gather") for row in rows)


@pytest.mark.parametrize("scenario", [*FSDP2, *FSDP1, "fsdp2_accumulate", "fsdp1_accumulate", "fsdp2_mixed"])
def test_exposed_time_of_the_modules_adds_up_to_that_of_the_rank(job: FsdpJob, scenario: str) -> None:
    result = job.result(scenario)
    of_modules, of_rank = (exposed_by_kind(result[section]) for section in ("fsdp", "communication"))
    assert of_modules == of_rank
    assert {kind for _, kind in of_rank} == {"all_gather", "reduce_scatter"}
    assert None not in {row["module"] for row in result["fsdp"]}


@pytest.mark.parametrize("scenario", HYBRID)
def test_with_replicas_exposed_time_adds_up_as_well(hybrid: FsdpJob, scenario: str) -> None:
    result = hybrid.result(scenario)
    of_modules, of_rank = (exposed_by_kind(result[section]) for section in ("fsdp", "communication"))
    assert of_modules == of_rank
    assert {kind for _, kind in of_rank} == {"all_gather", "reduce_scatter", "all_reduce"}
    assert None not in {row["module"] for row in result["fsdp"]}


def shards(rows: list[dict[str, Any]], kind: str) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        if row["kind"] == kind:
            found[row["module"]].add(row["shard_bytes"])
    return dict(found)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("scenario", [*FSDP2, *FSDP1, *HYBRID])
def test_a_rank_s_part_is_that_of_the_parameters_over_the_ranks(
    request: pytest.FixtureRequest, scenario: str, kind: str
) -> None:
    """Two ranks shard, with replicas too."""
    job: FsdpJob = request.getfixturevalue("hybrid" if scenario in HYBRID else "job")
    expected = {module: {size // 2} for module, size in units(job.facts[0][scenario]).items()}
    assert shards(job.result(scenario)["fsdp"], kind) == expected


def test_parameters_that_travel_in_16_bits_are_half_as_large(job: FsdpJob) -> None:
    rows, expected = job.result("fsdp2_mixed")["fsdp"], units(job.facts[0]["fsdp2_mixed"])
    assert {row["module"]: row["unit_bytes"] for row in rows} == expected
    assert shards(rows, "all_gather") == {module: {size // 4} for module, size in expected.items()}
    assert shards(rows, "reduce_scatter") == {module: {size // 2} for module, size in expected.items()}


def test_what_ranks_cannot_share_evenly_travels_with_padding(job: FsdpJob) -> None:
    """Weight [3, 32] and bias [3] of one layer become 4 rows."""
    rows = job.result("fsdp2_padded")["fsdp"]
    size_bytes = {row["module"]: row["unit_bytes"] for row in rows}
    assert size_bytes["blocks.2"] == 4 * ((32 * 32 + 32) + (3 * 32 + 3) + (32 * 3 + 32))
    whole = size_bytes | {"blocks.2": size_bytes["blocks.2"] + 4 * (32 + 1)}
    for kind in ("all_gather", "reduce_scatter"):
        assert shards(rows, kind) == {module: {size // 2} for module, size in whole.items()}


def test_prefetching_is_not_promised_to_hide_what_blocks(job: FsdpJob) -> None:
    for scenario in ("fsdp2", "fsdp1"):
        result = job.result(scenario)
        assert result["fsdp_prefetch"] == []
        assert "prefetching would hide nothing" in result["fsdp_remark"]
        assert not [finding for finding in result["findings"] if "modules_ahead" in finding["evidence"]]


@pytest.mark.parametrize("scenario", ["fsdp2", "fsdp2_prefetch"])
def test_without_metadata_fsdp2_has_the_same_rows_but_sizes_of_units(job: FsdpJob, scenario: str) -> None:
    plain, recorded = job.plain_result(scenario), job.result(scenario)
    assert plain["run"]["strategies"] == ["fsdp2"]
    assert plain["fsdp"] == [row | {"unit_bytes": None} for row in recorded["fsdp"]]


def test_without_metadata_fsdp1_has_rows_without_names_whose_time_adds_up(job: FsdpJob) -> None:
    plain = job.plain_result("fsdp1")
    assert {row["module"] for row in plain["fsdp"]} == {None}
    assert "FSDP1 does not name its modules" in plain["fsdp_remark"]
    assert exposed_by_kind(plain["fsdp"]) == exposed_by_kind(plain["communication"])
    counts = Counter((row["kind"], row["phase"]) for row in plain["fsdp"] for _ in range(row["count"]))
    assert counts["all_gather", "forward"] == 2 * STEPS * len(units(job.facts[0]["fsdp1"]))


@pytest.mark.parametrize("scenario", [*FSDP2, *FSDP1, "fsdp1_accumulate", "fsdp2_accumulate"])
def test_blocking_collectives_overlap_nothing_and_are_all_joined(job: FsdpJob, scenario: str) -> None:
    result = job.result(scenario)
    assert max(rank["overlap_ratio"] for rank in result["ranks"]) <= 0.02
    assert [rank["unjoined"] for rank in result["joins"]] == [[], []]
    assert {rank["collectives"] for rank in result["joins"]} == {rank["joined"] for rank in result["joins"]}
    assert [(group["parallelism"], group["ranks"]) for group in result["groups"]] == [("dp", "world")]


def test_modules_sharded_as_one_are_one_unit(job: FsdpJob) -> None:
    names = {row["module"] for row in job.result("fsdp2_together")["fsdp"]}
    assert names == {"", "blocks.0, blocks.1", "blocks.2"}


@pytest.mark.parametrize("scenario", ["fsdp1_accumulate", "fsdp2_accumulate"])
def test_gradients_that_accumulate_are_reduced_in_the_last_micro_batch_only(job: FsdpJob, scenario: str) -> None:
    rows = [row for row in job.result(scenario)["fsdp"] if row["rank"] == 0 and row["kind"] == "reduce_scatter"]
    assert {row["module"]: row["count"] for row in rows} == dict.fromkeys(units(job.facts[0][scenario]), STEPS)


@pytest.mark.parametrize("scenario", HYBRID)
def test_hybrid_sharding_gathers_among_shards_and_reduces_across_replicas(hybrid: FsdpJob, scenario: str) -> None:
    result = hybrid.result(scenario)
    modules = set(units(hybrid.facts[0][scenario]))

    assert result["run"]["strategies"] == sorted([scenario.partition("_")[0], "hsdp"])
    for rank in range(4):
        rows = [row for row in result["fsdp"] if row["rank"] == rank and row["kind"] == "all_reduce"]
        assert {row["module"]: row["count"] for row in rows} == dict.fromkeys(modules, STEPS)
        shard, replicate = [rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]
        groups = {(row["kind"], row["group"]) for row in result["communication"] if row["rank"] == rank}
        members = {kind: result["groups"][group]["ranks"] for kind, group in groups}
        assert members == {"all_gather": shard, "reduce_scatter": shard, "all_reduce": replicate}
        assert {result["groups"][group]["parallelism"] for _, group in groups} == {"dp"}
        dimensions = {row["dimension"]: row["groups"] for row in result["dimensions"] if row["rank"] == rank}
        numbers = dict(groups)
        named = scenario == "fsdp2_hybrid"  # FSDP1 was given a mesh without names
        names = ("shard", "replicate") if named else ("dp_shard", "dp_replicate")
        assert dimensions == {names[0]: [numbers["all_gather"]], names[1]: [numbers["all_reduce"]]}
    assert max(rank["overlap_ratio"] for rank in result["ranks"]) <= 0.02
    assert [rank["unjoined"] for rank in result["joins"]] == [[]] * 4


@pytest.mark.parametrize("scenario", HYBRID)
def test_the_dimensions_of_hybrid_sharding_have_their_names_in_every_table(hybrid: FsdpJob, scenario: str) -> None:
    result = hybrid.result(scenario)
    shard, replicate = ("shard", "replicate") if scenario == "fsdp2_hybrid" else ("dp_shard", "dp_replicate")
    expected = {"all_gather": shard, "reduce_scatter": shard, "all_reduce": replicate}
    used = {row["group"]: row["kind"] for row in result["communication"]}
    assert {(kind, result["groups"][group]["dimension"]) for group, kind in used.items()} <= set(expected.items())
    causes = {(row["kind"], row["group"]) for row in result["diagnosis"]["causes"] if row["kind"] in expected}
    assert causes <= set(expected.items())


UNSET2 = {"param_dtype": None, "reduce_dtype": None, "offload_policy": None, "dp_shard": 2}
UNSET2 |= {"set_modules_to_forward_prefetch": 0, "set_modules_to_backward_prefetch": 0}
FREED = {"blocks.0": True, "blocks.1": True, "blocks.1.mlp": True, "blocks.2": True, "": False}
UNSET1 = {
    "sharding_strategy": "FULL_SHARD",
    "backward_prefetch": "BACKWARD_PRE",
    "forward_prefetch": False,
    "limit_all_gathers": True,
    "param_dtype": None,
    "reduce_dtype": None,
    "buffer_dtype": None,
    "cpu_offload": False,
    "use_orig_params": False,
    "dp_shard": 2,
}
CONFIGURED = {
    "fsdp2": UNSET2 | {"reshard_after_forward": FREED},
    "fsdp2_prefetch": UNSET2
    | {
        "reshard_after_forward": FREED,
        "set_modules_to_forward_prefetch": 2,
        "set_modules_to_backward_prefetch": 2,
    },
    "fsdp2_mixed": UNSET2 | {"reshard_after_forward": FREED, "param_dtype": "bfloat16", "reduce_dtype": "float32"},
    "fsdp2_kept": UNSET2 | {"reshard_after_forward": False, "offload_policy": "CPUOffloadPolicy"},
    "fsdp2_hybrid": UNSET2 | {"reshard_after_forward": FREED, "dp_replicate": 2},
    "fsdp1": UNSET1,
    "fsdp1_prefetch": UNSET1 | {"forward_prefetch": True, "use_orig_params": True},
    "fsdp1_kept": UNSET1
    | {
        "sharding_strategy": "SHARD_GRAD_OP",
        "backward_prefetch": None,
        "limit_all_gathers": False,
        "param_dtype": "bfloat16",
        "reduce_dtype": "float32",
    },
    "fsdp1_hybrid": UNSET1 | {"sharding_strategy": "HYBRID_SHARD", "dp_replicate": 2},
}


@pytest.mark.parametrize("scenario", CONFIGURED)
def test_the_configuration_is_what_was_set(request: pytest.FixtureRequest, scenario: str) -> None:
    job: FsdpJob = request.getfixturevalue("hybrid" if scenario in HYBRID else "job")
    component = scenario.partition("_")[0]
    assert settings_of(job.result(scenario), component) == CONFIGURED[scenario]


@pytest.mark.parametrize("scenario", ["fsdp2_kept", "fsdp1_kept"])
def test_kept_parameters_are_gathered_once_and_nothing_else_is_advised(job: FsdpJob, scenario: str) -> None:
    result = job.result(scenario)
    phases = {row["phase"] for row in result["fsdp"] if row["kind"] == "all_gather"}
    assert phases == {"forward"}
    assert not [change for change in result["whatif"]["fix"] if "kept from forward" in change["what"]]


def test_a_compiled_model_is_named_with_its_backend(job: FsdpJob) -> None:
    settings = settings_of(job.result("fsdp2_compiled"), "compile")
    assert (settings["backend"], settings["dynamic"], settings["fullgraph"]) == ("aot_eager", None, False)
    rows = [row for row in job.result("fsdp2_compiled")["configuration"] if row["setting"] == "backend"]
    assert [row["modules"] for row in rows] == [["FSDPNetwork"]]
