"""Every table tracekit returns: its columns with type, unit and meaning, once.

The DataFrames of a result, the JSON contract, exports and the documentation all follow from here.
"""

from tracekit.schema.buckets import BUCKET_MAP, BUCKET_WHATIF, BUCKETS, BUCKETS_BY_INDEX
from tracekit.schema.columns import Column, Filled, Frame, Table, records, rows_of
from tracekit.schema.communication import CLOCK, COLLECTIVES, COMMUNICATION, COMMUNICATION_BY_KIND, POINT_TO_POINT
from tracekit.schema.dimensions import DIMENSIONS, DIMENSIONS_BY_NAME
from tracekit.schema.experts import EXPERT_LOAD
from tracekit.schema.fsdp import FSDP, FSDP_BY_LAYER, FSDP_BY_MODULE, FSDP_PREFETCH
from tracekit.schema.pipeline import PIPELINE_ACTIONS, PIPELINE_RANKS, PIPELINE_STAGES
from tracekit.schema.roofline import ROOFLINE
from tracekit.schema.rpc import RPC, RPC_BY_FUNCTION, RPC_UNJOINED
from tracekit.schema.steps import MEMORY, PHASE_FACTS, PHASES, PHASES_BY_PHASE, RANKS, STEPS
from tracekit.schema.stragglers import CRITICAL_PATH, STRAGGLERS
from tracekit.schema.tensor import TENSOR, TENSOR_BY_LAYER, TENSOR_BY_MODULE

__all__ = [
    "BUCKETS",
    "BUCKETS_BY_INDEX",
    "BUCKET_MAP",
    "BUCKET_WHATIF",
    "CLOCK",
    "COLLECTIVES",
    "COMMUNICATION",
    "COMMUNICATION_BY_KIND",
    "CRITICAL_PATH",
    "DIMENSIONS",
    "DIMENSIONS_BY_NAME",
    "EXPERT_LOAD",
    "FSDP",
    "FSDP_BY_LAYER",
    "FSDP_BY_MODULE",
    "FSDP_PREFETCH",
    "MEMORY",
    "PHASES",
    "PHASES_BY_PHASE",
    "PHASE_FACTS",
    "PIPELINE_ACTIONS",
    "PIPELINE_RANKS",
    "PIPELINE_STAGES",
    "POINT_TO_POINT",
    "RANKS",
    "ROOFLINE",
    "RPC",
    "RPC_BY_FUNCTION",
    "RPC_UNJOINED",
    "STEPS",
    "STRAGGLERS",
    "TABLES",
    "TENSOR",
    "TENSOR_BY_LAYER",
    "TENSOR_BY_MODULE",
    "Column",
    "Filled",
    "Frame",
    "Table",
    "records",
    "rows_of",
]

TABLES: tuple[Table, ...] = tuple(value for value in globals().values() if isinstance(value, Table))
