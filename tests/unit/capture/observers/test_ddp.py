"""The map of buckets equals that of DDP's reducer, for models that the integration tests do not train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.groups import GroupTable
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.ddp import DdpObserver

torch = require_module("torch")
distributed = require_module("torch.distributed")


@pytest.fixture
def group() -> Iterator[None]:
    assert not distributed.is_initialized(), "another test left its process group behind"
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class WithEmbedding(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.before = torch.nn.Linear(4, 4)
        self.table = torch.nn.Embedding(10, 4, sparse=True)
        self.dense_table = torch.nn.Embedding(10, 4)
        self.after = torch.nn.Linear(4, 4)

    def forward(self, index: Any) -> Any:
        return self.after(self.before(self.table(index) + self.dense_table(index)))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("find_unused", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_each_sparse_gradient_has_a_bucket_to_itself(find_unused: bool, steps: int) -> None:
    model = torch.nn.parallel.DistributedDataParallel(WithEmbedding(), find_unused_parameters=find_unused)
    names = {id(parameter): name for name, parameter in model.module.named_parameters()}
    for _ in range(steps):
        model(torch.tensor([1, 2])).sum().backward()
    observer, draft = DdpObserver(), MetadataDraft(groups=GroupTable.of_this_rank())

    observer.attach(LiveObjects([model]))
    observer.detach(LiveObjects())
    observer.contribute(draft)

    described = [module for module in draft.ddp if module.module.startswith("WithEmbedding")][-1]
    buckets = model.reducer._get_zeros_like_grad_buckets()
    assert len(described.buckets) == len(buckets) > 1
    assert [bucket.parameters for bucket in described.buckets] == [
        [names[id(parameter)] for parameter in bucket.parameters()] for bucket in buckets
    ]
