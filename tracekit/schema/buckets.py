"""Tables of DDP's buckets."""

from tracekit.schema.columns import RANK, Column, Table

__all__ = ["BUCKETS", "BUCKETS_BY_INDEX", "BUCKET_MAP"]

_BUCKET = (
    Column("module", "str", "", "Name of the DDP module."),
    Column("index", "int", "", "Index of the bucket, in order of launch."),
)
BUCKET_MAP = Table(
    "bucket_map",
    (
        *_BUCKET,
        Column("size_bytes", "int", "bytes", "Size of the bucket."),
        Column("dtype", "str", "", "Data type of its gradients."),
        Column("parameters", "list", "", "Qualified names of its parameters."),
    ),
)
BUCKETS = Table(
    "buckets",
    (
        RANK,
        Column("step", "int", "", "Number of the step, as recorded."),
        *_BUCKET,
        Column("ready_ns", "int", "ns", "When its last gradient was there, from the step's start."),
        Column("launch_ns", "int", "ns", "When it was launched, from the step's start."),
        Column("start_ns", "int", "ns", "When its reduction began, from the step's start."),
        Column("end_ns", "int", "ns", "When its reduction ended, from the step's start."),
        Column("exposed_ns", "int", "ns", "How much of its reduction no compute covers."),
        Column("busbw_bps", "float?", "bytes/s", "Bus bandwidth of its transfer, from the last rank's arrival on."),
    ),
)
BUCKETS_BY_INDEX = Table(
    "buckets_by_index",
    (
        *_BUCKET,
        Column("ready_ns", "float", "ns", "From the step's start; like what follows mean over ranks and steps."),
        Column("queued_ns", "float", "ns", "From its launch to its start."),
        Column("total_ns", "float", "ns", "From its start to its end, waiting for other ranks included."),
        Column("exposed_ns", "float", "ns", "How much of that no compute covers."),
        Column("busbw_bps", "float?", "bytes/s", "Median bus bandwidth."),
        Column("worst_rank", "int", "", "Rank on which most of it is exposed."),
        Column("worst_exposed_ns", "float", "ns", "How much, mean over its steps."),
    ),
)
