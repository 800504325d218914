"""Which private names of torch are found missing."""

from __future__ import annotations

import pytest

from tests.components import require_module
from tracekit.capture.private_names.entry import PrivateName
from tracekit.checks import missing_names


def test_a_name_that_is_gone_is_found() -> None:
    """GIVEN names that torch does not have, of every kind THEN each is missing."""
    require_module("torch")
    gone = [
        PrivateName(module=module, attribute=attribute, use="none", fallback="none", set_by=set_by)
        for module, attribute, set_by in (
            ("torch._C", "_no_such_function", ""),
            ("torch._no_such_module", "", ""),
            ("torch._no_such_module", "_name", ""),
            ("torch.nn.modules.module", "Module._no_such_attribute", ""),
            ("torch.nn.modules.module", "_NoSuchClass._name", ""),
            ("torch.distributed.pipelining.schedules", "_PipelineSchedule._no_such_attribute", ""),
            ("torch.nn.modules.module", "Module._name", "torch.nn.modules.module.Module.__init__"),
            ("torch.nn.modules.module", "Module._name", "torch.nn.modules.module._no_such_function"),
        )
    ]

    assert missing_names(gone) == gone


def test_a_name_is_not_missing_while_the_one_that_stands_in_for_it_is_there() -> None:
    require_module("torch")
    new = PrivateName(
        module="torch._C", attribute="_no_such_function", instead="torch._C._old", use="none", fallback="none"
    )
    old = PrivateName(module="torch._C", attribute="_current_graph_task_id", use="none", fallback="none")
    stand_in = PrivateName(
        module="torch._C", attribute="_no_such_function", instead=old.path, use="none", fallback="none"
    )

    assert missing_names([new, old]) == [new]
    assert missing_names([stand_in, old]) == []


def test_a_name_of_a_part_that_the_build_lacks_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = require_module("torch")
    name = PrivateName(module="torch._C", attribute="_no_such_function", needs="NCCL", use="none", fallback="none")

    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert missing_names([name]) == []
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert missing_names([name]) == [name]


def test_without_torch_distributed_only_other_names_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = require_module("torch")
    names = [
        PrivateName(module=module, attribute="_no_such_function", use="none", fallback="none")
        for module in ("torch._C", "torch._C._distributed_c10d", "torch.distributed.rpc.api")
    ]

    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)

    assert missing_names(names) == names[:1]
