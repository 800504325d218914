"""`python -m tests.dask_cluster`: run two Dask workers on 127.0.0.1 until stdin ends; print the scheduler's address."""

from __future__ import annotations

import sys

import dask
from distributed import LocalCluster


def main() -> None:
    dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
