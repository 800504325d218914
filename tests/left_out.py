"""Tests that torch 2.6 leaves out, by name: what it cannot do over Gloo, without the probe, too (docs/capture.md)."""

from __future__ import annotations

import pytest

from tests.old_torch import VERSION

# Parts of their ids, by what that version lacks.
LEFT_OUT = {
    "FSDP2 does not run on CPUs": (
        *("fsdp2", "[sharded]", "test_hybrid_capture", "test_guarantees_failures", "travels_with_padding"),
        *("16_bits_are_half", "sharded_as_one", "is_not_promised", "compiled_model_is_named"),
    ),
    "over Gloo all schedules but GPipe hang": ("[1f1b", "[interleaved", "[loopedbfs", "[unnamed_mesh"),
    "Gloo's collectives have no group, no sequence id and no entry of the flight recorder": (
        *("test_joins.py", "[fsdp1_hybrid", "with_the_bytes_of_their_parameters[fsdp1"),
        *("reduced_in_the_last_micro_batch", "of_the_optimizer_with_all", "runs_in_a_span_of_its_bucket"),
        *("record_the_same_run_and_steps", "has_a_flight_recorder_entry", "flight_recorder_entry_is_created"),
        *("reduces_in_the_last_micro_batch", "before_the_process_group_is_destroyed", "tried_for_real"),
        *("do_not_overwrite_each_other", "parallel_layers_go_by_their_module", "scatter_and_gather_activations"),
        *("told_by_name_or_by_uneven", "size_of_an_uneven", "tokens_is_named[recorded", "even_experts_name_nobody"),
        *("share_is_of_its_own_time", "dtensor_are_tensor_parallel", "compiled_module_is_left_alone"),
        *("of_the_flight_recorder_is_joined", "reductions_of_a_parallel_loss"),
    ),
    "Gloo has no reduce-scatter of lists": ("test_tensor_parallelism_that_scatters",),
    "RPC records no threads of requests": ("both_sides_have_spans_of_one_id",),
    "compiled autograd marks no regions": ("with_compiled_autograd",),
    "a client of a store cannot be cloned": ("questions_use_a_separate_connection",),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if (0, 0) < VERSION < (2, 7):
        for item in items:
            for reason, parts in LEFT_OUT.items():
                if any(part in item.nodeid for part in parts):
                    item.add_marker(pytest.mark.skip(reason=f"torch 2.6: {reason}"))
