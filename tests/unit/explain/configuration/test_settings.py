"""The settings of all ranks, and what is said where ranks of one kind differ."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.exchanges import rank, run_of
from tracekit.explain.configuration import CONFIGURATION, Configuration, configuration, value_of
from tracekit.explain.section import Unavailable
from tracekit.model.metadata import PipelineLayout, Settings, SettingValue
from tracekit.model.run import Run
from tracekit.model.summary import PipelineMembership
from tracekit.model.table import rows_of


def ddp(**values: SettingValue) -> Settings:
    return Settings(component="ddp", modules=["Network"], values=values)


def run(*of_ranks: tuple[Settings, ...], stages: tuple[int, ...] | None = None) -> Run:
    """Return a run of ranks with these settings; `stages`: of a pipeline, one for each rank."""
    ranks = [rank(number).with_part(CONFIGURATION, settings) for number, settings in enumerate(of_ranks)]
    if stages is not None:
        layouts = [
            PipelineLayout(schedule="gpipe", stages=2, virtual_stages=1, microbatches=2, stage_ids=[stage])
            for stage in stages
        ]
        ranks = [replace(s, pipeline=PipelineMembership(layout=of)) for s, of in zip(ranks, layouts, strict=True)]
    return run_of(ranks)


def result(of_run: Run) -> Configuration:
    found = configuration(of_run)
    assert isinstance(found, Configuration)
    return found


def test_each_value_has_a_row_with_the_ranks_that_have_it() -> None:
    found = result(run((ddp(bucket_cap_mb=25, static_graph=False),), (ddp(bucket_cap_mb=100, static_graph=False),)))
    rows = {(row["setting"], row["value"]): row["ranks"] for row in rows_of(found, "settings")}
    assert rows == {("bucket_cap_mb", 25): [0], ("bucket_cap_mb", 100): [1], ("static_graph", False): [0, 1]}


def test_a_rank_that_is_configured_otherwise_is_named() -> None:
    usual = (ddp(bucket_cap_mb=100),)
    (finding,) = result(run(usual, usual, usual, (ddp(bucket_cap_mb=25),))).findings
    assert "ddp bucket_cap_mb is 100 (rank 3: 25)" in finding.text
    assert finding.severity == "warning"
    assert finding.evidence["ranks"] == [3]
    assert finding.evidence["differences"] == [
        {
            "component": "ddp",
            "module": "Network",
            "setting": "bucket_cap_mb",
            "values": [{"value": 100, "ranks": [0, 1, 2]}, {"value": 25, "ranks": [3]}],
        }
    ]


def test_a_component_that_only_some_ranks_have_is_a_difference() -> None:
    compiled = Settings(component="compile", modules=["Network"], values={"backend": "inductor"})
    (finding,) = result(run((ddp(a=1), compiled), (ddp(a=1),))).findings
    assert "only rank 0 has compile" in finding.text


def test_stages_of_a_pipeline_may_differ_and_ranks_of_one_stage_may_not() -> None:
    first, last = (ddp(bucket_cap_mb=25),), (ddp(bucket_cap_mb=100),)
    assert result(run(first, last, first, last, stages=(0, 1, 0, 1))).findings == ()
    assert result(run(first, last, last, last, stages=(0, 1, 0, 1))).findings != ()


def test_what_the_compiler_did_may_differ() -> None:
    counts = [(Settings(component="compile", values={"graphs": n, "graph_breaks": n - 1}),) for n in (2, 3)]
    assert result(run(*counts)).findings == ()


def test_without_settings_there_is_no_configuration() -> None:
    found = configuration(run((), ()))
    assert isinstance(found, Unavailable)
    assert found.expected


def test_a_value_is_known_where_all_agree() -> None:
    job = run((ddp(a=None, b=1),), (ddp(a=None, b=2),))
    assert value_of(job, "ddp", "a") is None
    assert value_of(job, "ddp", "b") == Unavailable(reason="b differs")
    assert value_of(job, "fsdp1", "a") == Unavailable(reason="a is not known")
