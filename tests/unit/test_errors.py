"""Errors that a user can cause: their text, and that they pass between processes."""

from __future__ import annotations

import pickle

import pytest

from tracekit.errors import InputError, NotATraceError, OutputError, TracekitError, UsageError


@pytest.mark.parametrize("kind", [TracekitError, UsageError, InputError, NotATraceError, OutputError])
def test_errors_can_be_pickled(kind: type[TracekitError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what: happened", hint="do this")))
    assert type(error) is kind
    assert (error.message, error.hint, str(error)) == ("what: happened", "do this", "what: happened (do this)")
    assert kind.exit_code in {2, 3, 4}
