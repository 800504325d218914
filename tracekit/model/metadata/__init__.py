"""The types of the `tracekit` key that a capture writes into its trace, and of the manifest beside the trace.

`capture` writes them as JSON and `read` parses them. They import neither numpy, pandas nor torch, so that a training
job does not pay for it. Times are integer nanoseconds of the rank's wall clock, sizes are bytes, `None` means unknown.
Unknown keys are ignored. A type never changes within a `version`.
"""

from tracekit.model.metadata.communication import (
    CollectiveRecord,
    CommunicationPurpose,
    CommunicationUse,
    PointToPointRecord,
)
from tracekit.model.metadata.document import (
    MANIFEST_SUFFIX,
    MERGED_KEY,
    METADATA_KEY,
    METADATA_VERSION,
    CaptureMetadata,
    Manifest,
)
from tracekit.model.metadata.job import (
    ClockMeasurement,
    ClockSample,
    Device,
    Group,
    Mesh,
    Overhead,
    RankSlice,
    RecordedStep,
    RecordingNote,
    Window,
)
from tracekit.model.metadata.limits import MAX_NS, MAX_RANKS, Integer, Rank, WorldSize
from tracekit.model.metadata.progress import PROGRESS_SUFFIX, Progress, ProgressHeader
from tracekit.model.metadata.rpc import (
    RpcCall,
    RpcCallId,
    RpcCallKind,
    RpcService,
    RpcUse,
    RpcWait,
)
from tracekit.model.metadata.training import (
    Bucket,
    DdpModule,
    FsdpUnit,
    MemoryUse,
    PipelineLayout,
    Precision,
    Settings,
    SettingValue,
)

__all__ = [
    "MANIFEST_SUFFIX",
    "MAX_NS",
    "MAX_RANKS",
    "MERGED_KEY",
    "METADATA_KEY",
    "METADATA_VERSION",
    "PROGRESS_SUFFIX",
    "Bucket",
    "CaptureMetadata",
    "ClockMeasurement",
    "ClockSample",
    "CollectiveRecord",
    "CommunicationPurpose",
    "CommunicationUse",
    "DdpModule",
    "Device",
    "FsdpUnit",
    "Group",
    "Integer",
    "Manifest",
    "MemoryUse",
    "Mesh",
    "Overhead",
    "PipelineLayout",
    "PointToPointRecord",
    "Precision",
    "Progress",
    "ProgressHeader",
    "Rank",
    "RankSlice",
    "RecordedStep",
    "RecordingNote",
    "RpcCall",
    "RpcCallId",
    "RpcCallKind",
    "RpcService",
    "RpcUse",
    "RpcWait",
    "SettingValue",
    "Settings",
    "Window",
    "WorldSize",
]
