"""Chrome's trace event format, for viewers that read no other format: chrome://tracing, TensorBoard, scripts."""

from tracekit.chrome.document import ChromeFormat
from tracekit.chrome.writer import ChromeTrack, ChromeWriter

__all__ = ["ChromeFormat", "ChromeTrack", "ChromeWriter"]
