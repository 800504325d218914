"""Simulated GPU jobs whose truth is known: which traces would `torch.profiler` leave, and what is right to say of them?

    job = simulate(spec_of("pipeline", seed=7, cause="uneven_stage"))
    job.write(folder)                      # a Chrome trace a rank, as a plain torch.profiler writes it
    report = job.report(only=["pipeline"])  # the same without files
    job.truth.defect, job.truth.saving_ns  # what is planted in it, and what its removal saves

`spec.py` says what a job is, `truth.py` what is known of it. `engine.py` runs hosts, streams and kernels.
`strategies/` holds one training loop for each form of parallelism. `kineto.py` writes the records. Nothing here imports
tracekit, except `analysed.py`, which hands a job to it.
"""

from benchmarks.gpu_jobs.clocks import Clocks
from benchmarks.gpu_jobs.job import SimulatedJob, simulate
from benchmarks.gpu_jobs.random_specs import CAUSES, FAMILIES, spec_of
from benchmarks.gpu_jobs.spec import Cause, Defect, Family, JobSpec, Missing
from benchmarks.gpu_jobs.truth import Action, Message, Operation, RankStep, Truth

__all__ = [
    "CAUSES",
    "FAMILIES",
    "Action",
    "Cause",
    "Clocks",
    "Defect",
    "Family",
    "JobSpec",
    "Message",
    "Missing",
    "Operation",
    "RankStep",
    "SimulatedJob",
    "Truth",
    "simulate",
    "spec_of",
]
