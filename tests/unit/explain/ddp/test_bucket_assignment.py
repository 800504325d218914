"""Which parameters DDP puts into one bucket, as in real runs of `probes/ddp.py` (bytes of each bucket)."""

from __future__ import annotations

import pytest

from tracekit.explain.ddp.bucket_replay import Parameters, assigned_buckets, default_buckets, parameters_of
from tracekit.model.metadata import Bucket, DdpModule

HEAD_BIAS, HEAD, BIAS, WEIGHT = 10, 5120, 512, 512 * 512
MIB = 1 << 20


def in_order_of_gradients() -> Parameters:
    """Head, then twelve layers from the last to the first; of a layer the weight comes before the bias."""
    elements = [HEAD_BIAS, HEAD, *([WEIGHT, BIAS] * 12)]
    return parameters((elements,), rebuilt=True)


def parameters(buckets: tuple[list[int], ...], *, rebuilt: bool) -> Parameters:
    parts = [
        Bucket(
            index=i,
            size_bytes=4 * sum(counts),
            dtype="float32",
            parameters=[f"{i}.{k}" for k in counts],
            elements=counts,
        )
        for i, counts in enumerate(buckets)
    ]
    fields = {"module": "Network", "bucket_cap_bytes": None, "static_graph": False, "find_unused": not rebuilt}
    result = parameters_of(DdpModule(**fields, rebuilt=rebuilt, buckets=parts))
    assert result is not None
    return result


def sizes(result: Parameters, cap_mb: float) -> list[int]:
    return [sum(result.size_bytes[place] for place in bucket) for bucket in assigned_buckets(result, int(cap_mb * MIB))]


@pytest.mark.parametrize(
    ("cap_mb", "expected"),
    [
        (0.5, [1_069_096, *([1_050_624] * 11), 2048]),
        (1, [1_069_096, *([1_050_624] * 11), 2048]),
        (3, [3_170_344, *([3_151_872] * 3), 2048]),
        (7, [7_372_840, 5_255_168]),
        (25, [12_628_008]),
    ],
)
def test_a_bucket_is_closed_when_it_reaches_the_limit(cap_mb: float, expected: list[int]) -> None:
    assert sizes(in_order_of_gradients(), cap_mb) == expected


@pytest.mark.parametrize(
    ("cap_mb", "expected"),
    [
        (1, [22_568, *([1_050_624] * 11), 1_048_576]),
        (3, [22_568, *([3_151_872] * 3), 3_149_824]),
        (7, [5_275_688, 7_352_320]),
    ],
)
def test_find_unused_parameters_fills_buckets_in_the_order_of_parameters(cap_mb: float, expected: list[int]) -> None:
    """Weight and bias of twelve layers and the head, in the order of the parameters; reduced from the end."""
    result = parameters(([*([WEIGHT, BIAS] * 12), HEAD, HEAD_BIAS],), rebuilt=False)
    assert sizes(result, cap_mb) == expected


def test_sizes_come_from_gradients_where_the_map_has_none() -> None:
    bucket = Bucket(index=0, size_bytes=4 * 30, dtype="float32", parameters=[])
    fields = {"module": "Network", "bucket_cap_bytes": None, "static_graph": False, "find_unused": False}
    module = DdpModule(
        **fields, rebuilt=True, buckets=[bucket, Bucket(index=1, size_bytes=40, dtype="float32", parameters=[])]
    )
    result = parameters_of(module, [10, 20, 10])
    assert result is not None
    assert (result.buckets, result.size_bytes) == (((0, 1), (2,)), (40, 80, 40))
    assert parameters_of(module) is None


def test_by_default_the_first_bucket_is_a_small_one() -> None:
    """GIVEN 12.6 MB of gradients THEN the first bucket is closed at 1 MiB, and the next one could have 25."""
    result = in_order_of_gradients()
    first, rest = default_buckets(result)

    assert first == assigned_buckets(result, MIB)[0]
    assert sum(result.size_bytes[place] for place in (*first, *rest)) == sum(result.size_bytes)
