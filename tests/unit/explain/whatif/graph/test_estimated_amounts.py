"""What ranks send and receive in exchanges without sizes, as far as their experts' compute tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.unit.explain.model_parallel.experts import EXPERTS_NS, LAYERS, STEPS, exchange_tokens
from tracekit.explain.whatif.graph.run_communication import estimated_amounts
from tracekit.model.communication import KINDS

HOT = (0.8, 0.8, 1.6, 0.8)  # the mean of a layer is 1


def test_a_dispatch_brings_the_load_that_the_combine_takes_back() -> None:
    run = exchange_tokens(HOT).run()
    ((sent, received),) = estimated_amounts(run).values()
    load_ns, even_ns = np.array([HOT]).T * EXPERTS_NS, np.full((4, 1), EXPERTS_NS)
    kind = run.collectives[0].kind
    dispatch, combine, other = (kind == KINDS.index(name) for name in ("dispatch", "combine", "all_reduce"))

    assert dispatch.sum() == combine.sum() == STEPS * LAYERS
    assert (received[:, dispatch] == load_ns).all()
    assert (sent[:, combine] == load_ns).all()
    assert (sent[:, dispatch] == even_ns).all()
    assert (received[:, combine] == even_ns).all()
    assert (received[:, other] == -1).all()


def test_each_layer_has_its_load() -> None:
    """GIVEN a rank that is hot in the second layer only THEN the others are even, in all steps."""
    run = exchange_tokens(HOT, hot_layers=[1]).run()
    ((_, received),) = estimated_amounts(run).values()
    dispatch = received[:, run.collectives[0].kind == KINDS.index("dispatch")]

    np.testing.assert_allclose(dispatch[2].reshape(STEPS, LAYERS) / EXPERTS_NS, [[1, 1.6, 1, 1]] * STEPS)


def test_steps_with_different_numbers_of_layers_have_the_mean_of_the_rank() -> None:
    """GIVEN a recording in which the last step misses its last exchanges, on all ranks."""
    run = exchange_tokens(HOT).run()
    (matched,) = run.collectives
    cut = replace(matched, row=np.where(np.arange(len(matched.kind)) < len(matched.kind) - 3, matched.row, -1))
    ((_, received),) = estimated_amounts(replace(run, collectives=(cut,))).values()

    assert set(received[2].tolist()) == {-1, round(1.6 * EXPERTS_NS), EXPERTS_NS}
