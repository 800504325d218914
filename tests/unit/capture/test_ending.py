"""What SIGTERM does after probes have let go of it, in whatever order they do."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tracekit.capture.ending import SigtermHandler


@pytest.fixture
def handler() -> Iterator[Any]:
    """The handler before any probe: the default one."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield signal.SIG_DFL
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_program_has_its_handler_back_whichever_probe_ends_first(handler: Any, order: tuple[int, ...]) -> None:
    probes = [SigtermHandler(lambda: True) for _ in order]
    for probe in probes:
        probe.install()

    for number in order:
        probes[number].remove()

    assert signal.getsignal(signal.SIGTERM) == handler
