"""How the configuration looks: what differs between modules or ranks stands behind what most have."""

from __future__ import annotations

from benchmarks.exchanges import rank, run_of
from tracekit.explain.configuration import CONFIGURATION, Configuration, configuration
from tracekit.model.metadata import Settings
from tracekit.render.console import write
from tracekit.render.sections.job import configuration_block


def text(*of_ranks: tuple[Settings, ...]) -> str:
    run = run_of([rank(number).with_part(CONFIGURATION, settings) for number, settings in enumerate(of_ranks)])
    result = configuration(run)
    assert isinstance(result, Configuration)
    return " ".join(write(configuration_block(result, run), width=200, color=False).split())


def fsdp(value: bool, *modules: str) -> Settings:
    return Settings(component="fsdp2", modules=list(modules), values={"reshard_after_forward": value})


def test_layers_alike_have_one_name() -> None:
    settings = (fsdp(True, *(f"blocks.{i}" for i in range(4))), fsdp(False, "", "head"))
    assert "fsdp2 reshard_after_forward=True (<root>, head: False)" in text(settings)


def test_a_layer_that_differs_from_its_like_is_named_itself() -> None:
    settings = (fsdp(True, "blocks.0", "blocks.1"), fsdp(False, "blocks.2"))
    assert "reshard_after_forward=True (blocks.2: False)" in text(settings)


def test_a_rank_that_differs_is_named() -> None:
    assert "reshard_after_forward=True (rank 2: False)" in text(
        (fsdp(True, ""),), (fsdp(True, ""),), (fsdp(False, ""),)
    )
