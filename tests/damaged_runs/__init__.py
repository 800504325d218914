"""Runs of eight ranks of which one file is damaged, by the classes of docs/damaged-traces.md.

`good_run` gives the traces, `events` damages what a trace says, `text` how it is written, `folder` what lies beside it.
"""
