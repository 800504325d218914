"""All views of sections, in the order of the terminal: the list to which a new analysis is added."""

from __future__ import annotations

from typing import Any

from tracekit.render.section_view import SectionView
from tracekit.render.sections.attempts import ATTEMPTS_VIEW
from tracekit.render.sections.breakdown import BREAKDOWN_VIEW, OVERLAP_VIEW
from tracekit.render.sections.collectives import COLLECTIVES_VIEW
from tracekit.render.sections.configuration import CONFIGURATION_VIEW
from tracekit.render.sections.diagnosis import CRITICAL_PATH_VIEW, DIAGNOSIS_VIEW
from tracekit.render.sections.kernels import KERNELS_VIEW
from tracekit.render.sections.parallelism.buckets import BUCKETS_VIEW
from tracekit.render.sections.parallelism.fsdp import FSDP_VIEW
from tracekit.render.sections.parallelism.model_parallel import DIMENSIONS_VIEW, TENSOR_VIEW
from tracekit.render.sections.parallelism.pipeline import PIPELINE_VIEW
from tracekit.render.sections.pauses import PAUSES_VIEW
from tracekit.render.sections.phases import MEMORY_VIEW, PHASES_VIEW
from tracekit.render.sections.roofline import ROOFLINE_VIEW
from tracekit.render.sections.stragglers import STRAGGLERS_VIEW
from tracekit.render.sections.whatif import WHATIF_VIEW
from tracekit.rpc.view import RPC_VIEW

__all__ = ["VIEWS"]

VIEWS: tuple[SectionView[Any], ...] = (
    ATTEMPTS_VIEW,
    DIAGNOSIS_VIEW,
    BREAKDOWN_VIEW,
    PHASES_VIEW,
    PAUSES_VIEW,
    OVERLAP_VIEW,
    COLLECTIVES_VIEW,
    BUCKETS_VIEW,
    FSDP_VIEW,
    TENSOR_VIEW,
    PIPELINE_VIEW,
    DIMENSIONS_VIEW,
    RPC_VIEW,
    STRAGGLERS_VIEW,
    CRITICAL_PATH_VIEW,
    WHATIF_VIEW,
    ROOFLINE_VIEW,
    MEMORY_VIEW,
    KERNELS_VIEW,
    CONFIGURATION_VIEW,
)
