"""What a job set, from what its modules show."""

import pytest

from tracekit.model.metadata import bucket_cap_mb

MIB = 1 << 20


@pytest.mark.parametrize("option", [0.1, 0.0001, 1 / 3, 1, 2.5, 25])
def test_the_limit_of_a_bucket_is_the_option_that_was_set(option: float) -> None:
    assert bucket_cap_mb(int(option * MIB)) == pytest.approx(option, rel=1e-6 if option == 1 / 3 else 0)
