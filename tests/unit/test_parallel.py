"""What measures times has the machine to itself; all else shares it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tests.parallel import UnitsOfWork, machine


def is_free(folder: Path, how: int) -> bool:
    with (folder / "machine").open("w") as use:
        try:
            fcntl.flock(use, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("alone", [False, True])
def test_others_come_in_beside_a_test_unless_it_is_alone(tmp_path: Path, alone: bool) -> None:
    with machine(tmp_path, alone=alone):
        assert is_free(tmp_path, fcntl.LOCK_SH) is not alone
        assert not is_free(tmp_path, fcntl.LOCK_EX)
    assert is_free(tmp_path, fcntl.LOCK_EX)


def test_a_file_is_a_unit_of_work_or_a_parameter_of_its_fixture() -> None:
    unit = UnitsOfWork.__new__(UnitsOfWork)._split_scope
    assert unit("tests/unit/test_a.py::test_b[c]") == unit("tests/unit/test_a.py::test_d") == "tests/unit/test_a.py"
    probes = "tests/integration/test_probes.py"
    assert unit(f"{probes}::test_a[ddp-1]") == unit(f"{probes}::test_b[ddp-1]") != unit(f"{probes}::test_b[zero-3]")
