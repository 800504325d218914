"""Tables of DDP's buckets."""

from tracekit.analysis.table import RANK, Column, Display, Table

__all__ = ["BUCKETS", "BUCKETS_BY_INDEX", "BUCKETS_SHOWN", "BUCKET_MAP", "BUCKET_WHATIF"]

_BUCKET = (
    Column("module", "str", "", "Name of the DDP module."),
    Column("index", "int", "", "Place in the order of launch; -1: all gradients at once, before rebuilding."),
)
BUCKET_MAP = Table(
    "bucket_map",
    (
        *_BUCKET,
        Column("size_bytes", "int", "bytes", "Size of the bucket."),
        Column("dtype", "str", "", "Data type of its gradients."),
        Column("parameters", "list[str]?", "", "Qualified names of its parameters."),
        Column("inferred", "bool", "", "Whether the bucket was inferred from the order and sizes of all-reduces."),
    ),
)
BUCKETS = Table(
    "buckets",
    (
        RANK,
        Column("step", "int", "", "Number of the step, as recorded."),
        *_BUCKET,
        Column("turn", "int", "", "How many times the module reduced before in the step."),
        Column("ready_ns", "int", "ns", "When its last gradient was there, from the step's start."),
        Column("launch_ns", "int", "ns", "When it was launched, from the step's start."),
        Column("start_ns", "int", "ns", "When its reduction began, from the step's start."),
        Column("end_ns", "int", "ns", "When its reduction ended, from the step's start."),
        Column("uncovered_ns", "int", "ns", "How much of its reduction no compute covers."),
        Column("added_ns", "int", "ns", "Of that what lies after the end of all reductions before it: adds up."),
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
        Column("uncovered_ns", "float", "ns", "How much of that no compute covers."),
        Column("added_ns", "float", "ns", "Of that what lies after the end of all reductions before it: adds up."),
        Column("busbw_bps", "float?", "bytes/s", "Median bus bandwidth.", digits=2),
        Column("worst_rank", "int", "", "Rank with most of it."),
        Column("worst_uncovered_ns", "float", "ns", "How much, mean over its steps."),
    ),
)
BUCKETS_SHOWN = Table(
    "buckets_shown",
    (
        *BUCKET_MAP.columns,
        *BUCKETS_BY_INDEX.columns[len(_BUCKET) :],
        Column("params", "int?", "", "How many parameters it has."),
    ),
    Display(
        "DDP buckets, in order of launch (ms; ready: from the step's start){more}",
        "module? | first parameter=first | bucket=index | params | size_bytes | ready_ns? | queued_ns? "
        "| took=total_ns? | uncovered_ns? | bus GB/s=busbw_bps?",
        most=16,
    ),
)
"""What people see of buckets: what is in them, with their times where these are known."""
BUCKET_WHATIF = Table(
    "bucket_whatif",
    (
        Column("bucket_cap_mb", "float", "MiB", "Limit of the size of a bucket, as DDP's option of that name."),
        Column("buckets", "int", "", "How many buckets it makes."),
        Column("uncovered_ns", "int", "ns", "What no compute covers, a step: median over steps, mean over ranks."),
        Column("error_ns", "int", "ns", "What that may be off."),
        Column("saving_ns", "int", "ns", "How much sooner than now the last rank has its gradients back."),
        Column("present", "bool", "", "Whether this is the run's limit; its buckets are replayed like the others."),
    ),
)
