"""Annotations of an anonymised trace: labels of public forms stay, and of all others only a public beginning."""

from __future__ import annotations

import pytest

from tests.unit.read.decode.anonymous.with_pseudonyms import with_pseudonyms
from tracekit.capture.observers.pauses import _LOGGING
from tracekit.model.spans import logging_span
from tracekit.read.decode.anonymous.annotations import anonymous_annotation


def anonymous(name: str) -> str:
    return with_pseudonyms(anonymous_annotation, name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("enumerate(DataLoader)#AcmeIter.__next__", "enumerate(DataLoader)#annotation-1.__next__"),
        ("[pl][profile][Strategy]AcmeStrategy.training_step", "[pl][profile][Strategy]annotation-1.training_step"),
        ("[pl][profile][Strategy]DDPStrategy.acme", "[pl][profile][Strategy]DDPStrategy.annotation-1"),
        ("[pl][profile][Strategy]DDPStrategyAcme.test_step", "[pl][profile][Strategy]annotation-1.test_step"),
        ("PP:acme", "PP:annotation-1"),
        ("PP:2F0 acme", "PP:2F0 annotation-1"),
        ("nccl:all_reduce acme", "nccl:all_reduce annotation-1"),
        ("nccl:acme", "nccl:annotation-1"),
        ("c10d::acme", "c10d::annotation-1"),
        ("DistributedDataParallel.acme", "DistributedDataParallel.annotation-1"),
        ("FullyShardedDataParallel._acme", "FullyShardedDataParallel._annotation-1"),
        ("Torch-Compiled Region: acme", "Torch-Compiled Region: annotation-1"),
        ("Torch-Compiled Region: !acme", "Torch-Compiled Region: !annotation-1"),
        ("## Call CompiledFxGraph acme ##", "## Call CompiledFxGraph annotation-1"),
        ("FSDP::pre_forward for acme block", "FSDP::pre_forward for module-1"),
        ("FSDP::backward_prefetch for acme.0", "FSDP::backward_prefetch for module-1.0"),
        ("FSDP::acme (tower)", "FSDP::annotation-1"),
        ("Optimizer.step#SGD.step acme", "Optimizer.step#SGD.annotation-1"),
        ("Optimizer.step#Acme.step", "Optimizer.step#annotation-1.step"),
        ("Optimizer.step#AdamAcme.step", "Optimizer.step#annotation-1.step"),
        ("ProfilerStep#3 acme", "ProfilerStep#3 annotation-1"),
        ("aten::acme", "annotation-1"),
        ("Resource acme", "annotation-1"),
        ("tracekit.acme", "tracekit.annotation-1"),
        ("tracekit.backward acme", "tracekit.backward annotation-1"),
        ("tracekit.logging:acme", "tracekit.logging:annotation-1"),
        ("tracekit.optimizer:acme", "tracekit.optimizer:annotation-1"),
        ("tracekit.engine:acme", "tracekit.engine:annotation-1"),
        ("tracekit.checkpoint:save acme", "tracekit.checkpoint:save annotation-1"),
        ("tracekit.checkpoint:save torch.save.acme", "tracekit.checkpoint:save annotation-3.annotation-2.annotation-1"),
        ("tracekit.checkpoint:acme", "tracekit.checkpoint:annotation-1"),
        ("evaluation of acme", "annotation-1"),
    ],
)
def test_a_label_that_only_begins_like_a_public_one_keeps_its_beginning(name: str, expected: str) -> None:
    actual = anonymous(name)
    assert "acme" not in actual.lower()
    assert actual == expected


@pytest.mark.parametrize(
    "name",
    [
        "ProfilerStep#12",
        "Optimizer.step#AdamW.step",
        "Optimizer.zero_grad#SGD.zero_grad",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "[pl][profile][Strategy]DDPStrategy.validation_step",
        "PP:2F0",
        "PP:1SEND_F3",
        "PP:(0F1;1B2)OVERLAP_F_B",
        "nccl:_all_gather_base",
        "nccl:all_gather_into_tensor_coalesced",
        "nccl:send 0->11",
        "nccl:recv 0<-1",
        "gloo:sparse_all_reduce",
        "c10d::_allgather_base_",
        "DistributedDataParallel.forward",
        "FullyShardedDataParallel._post_backward_hook",
        "FSDP::root_pre_forward",
        "FSDP::post_backward_reduce [pg=2]",
        "Torch-Compiled Region: 0/0",
        "Torch-Compiled Region: !0/1/2_1",
        "TorchDynamo Cache Lookup",
        f"## Call CompiledFxGraph f{'wkqk5ic' * 7}22 ##",
        "Forward 3",
        "## Validation ##",
        "Buffer Flush",
        "PyTorch Profiler (0)",
        "tracekit.calibration",
        "tracekit.checkpoint",
        "tracekit.checkpoint:save torch.save",
        "tracekit.checkpoint:await torch.distributed.checkpoint",
        "tracekit.optimizer:fused_scaled_step",
        "tracekit.engine:backward",
        "tracekit.pp:F.s1.mb0.loss",
        "tracekit.forward:m0",
        "tracekit.logging:stdout",
        *(
            logging_span(f"{owner or module}.{function}")
            for module, owner, functions in _LOGGING
            for function in functions
        ),
    ],
)
def test_a_public_label_stays(name: str) -> None:
    assert anonymous(name) == name
