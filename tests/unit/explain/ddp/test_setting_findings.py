"""Advice on DDP's settings, for a training with known times, and none on what is set already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from tests.builders import write_run
from tests.unit.explain.ddp import ddp_training as training
from tracekit.explain.ddp.bucket_findings import setting_findings
from tracekit.explain.ddp.bucket_replay import BackwardPass
from tracekit.explain.ddp.bucket_whatif import BucketWhatIf, bucket_whatif
from tracekit.explain.ddp.buckets import buckets
from tracekit.explain.ddp.tables import DDP_MODULES
from tracekit.findings.finding import Finding
from tracekit.loading.load import load
from tracekit.model.run import Run

LAYERS = (7, 3)
STEP_NS = 150e6
KNOWN = {"comm_hook": "none", "gradient_as_bucket_view": False}


def run(folder: Path, **settings: object) -> Run:
    module = training.module(LAYERS, 2.5, **settings)
    traces = [training.rank(rank, LAYERS).capture(ddp=(module,), clock=[(0, 0, 0)]) for rank in (0, 1)]
    return load(write_run(folder, traces))


def advice(of_run: Run, word: str) -> list[Finding]:
    return [finding for finding in buckets(of_run).findings if word in (finding.action or "")]


def hook_advice(of_run: Run, device: Literal["cpu", "gpu"]) -> list[Finding]:
    """Return the advice on hooks, of ranks with this device."""
    outcome = bucket_whatif(of_run)
    assert isinstance(outcome, BucketWhatIf)
    ranks = tuple(replace(summary, device=device) for summary in of_run.ranks)
    found = setting_findings(replace(of_run, ranks=ranks), of_run.ranks[0][DDP_MODULES].modules, outcome, STEP_NS)
    return [finding for finding in found if "compress_hook" in (finding.action or "")]


def test_a_hook_that_compresses_is_advised_with_what_it_saves(tmp_path: Path) -> None:
    (finding,) = hook_advice(run(tmp_path, **KNOWN), "gpu")
    assert "register_comm_hook(None, bf16_compress_hook)" in str(finding.action)
    assert finding.saving_ns == pytest.approx(6e6, rel=0.02)
    assert finding.saving_error_ns is not None
    assert finding.saving_error_ns < 1e6


def test_cpus_convert_too_slowly(tmp_path: Path) -> None:
    assert hook_advice(run(tmp_path, **KNOWN), "cpu") == []


@pytest.mark.parametrize("hook", ["fp16_compress_hook", "mine.hook", None])
def test_no_hook_is_advised_where_there_is_one_or_it_is_not_known(tmp_path: Path, hook: str | None) -> None:
    assert hook_advice(run(tmp_path, **KNOWN | {"comm_hook": hook}), "gpu") == []


def test_a_module_that_reduced_nothing_does_not_count(tmp_path: Path) -> None:
    """GIVEN a second DDP module with a hook, which did not run."""
    modules = (training.module(LAYERS, 2.5, **KNOWN), training.module((), 25, module="Idle", comm_hook="mine.hook"))
    traces = [training.rank(rank, LAYERS).capture(ddp=modules, clock=[(0, 0, 0)]) for rank in (0, 1)]
    assert len(hook_advice(load(write_run(tmp_path, traces)), "gpu")) == 1


def with_copies(outcome: BackwardPass) -> None:
    outcome.back_ns[:] = 1e6  # of each gradient


def test_copies_out_of_the_buckets_are_what_views_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN 1 ms of copying for each of 10 gradients, of which those of the last 3 follow the last reduction."""
    from tracekit.explain.ddp import bucket_whatif as module

    passes_of_groups = module.passes_of_groups

    def copying(of_run: Run) -> object:
        groups = passes_of_groups(of_run)
        assert isinstance(groups, list)
        for each in (each for group in groups for each in group.passes):
            with_copies(each.observed)
        return groups

    monkeypatch.setattr(module, "passes_of_groups", copying)
    job = run(tmp_path, **KNOWN)
    outcome = bucket_whatif(job)
    assert isinstance(outcome, BucketWhatIf)
    assert outcome.without_copies is not None
    assert outcome.without_copies.saving_ns == pytest.approx(3e6, rel=0.1)


def test_views_are_advised_only_where_they_are_known_to_be_off(tmp_path: Path) -> None:
    """GIVEN no copies back. THEN nothing is advised, whatever is set."""
    for value in (False, True, None):
        folder = tmp_path / str(value)
        folder.mkdir()
        assert advice(run(folder, **KNOWN | {"gradient_as_bucket_view": value}), "gradient_as_bucket_view") == []
