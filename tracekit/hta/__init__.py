"""The bridge to Holistic Trace Analysis (HTA): its analyses on what tracekit has read.

Modules that import HTA are imported when they are needed, by `package.bridge`.
"""
