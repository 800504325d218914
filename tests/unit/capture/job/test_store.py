"""Questions to the job's store have a total time limit, and do not change the job's client."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.job.run_agreement import BoundedStore

distributed = require_module("torch.distributed")

SERVER = """
import time
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
print(store.port, flush=True)
time.sleep(120)
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    """A process that serves a store; its first line of output is the port."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def client(server: subprocess.Popen[str]) -> Any:
    assert server.stdout is not None
    port = int(server.stdout.readline())
    tcp = distributed.TCPStore("127.0.0.1", port, None, False, timeout=timedelta(seconds=60))
    return distributed.PrefixStore("default_pg", tcp)


def test_questions_use_a_separate_connection(client: Any) -> None:
    bounded = BoundedStore(client)

    bounded.ask(lambda store: store.set("key", "value"), 10.0)

    assert bounded.ask(lambda store: store is not client, 10.0)
    assert client.get("key") == b"value"
    assert client.timeout == timedelta(seconds=60)
    bounded.close()


def test_an_error_of_the_store_is_raised_and_the_next_question_is_answered() -> None:
    bounded = BoundedStore(distributed.HashStore())

    with pytest.raises(ZeroDivisionError):
        bounded.ask(lambda _: 1 // 0, 10.0)

    assert bounded.ask(lambda _: 1, 10.0) == 1
    bounded.close()


def test_a_closed_store_leaves_no_thread() -> None:
    bounded = BoundedStore(distributed.HashStore())
    bounded.ask(lambda _: None, 10.0)

    bounded.close()
    bounded.close()

    deadline = time.monotonic() + 10
    while bounded.is_alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not bounded.is_alive
    with pytest.raises(TimeoutError):
        bounded.ask(lambda _: 1, 10.0)
