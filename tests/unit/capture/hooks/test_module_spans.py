"""Spans around forward passes, which stay balanced if hooks raise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.hooks import span as module_spans
from tracekit.capture.hooks.span import ForwardSpans


class Recorded:
    """Replaces a span; logs when it is entered and left."""

    def __init__(self, log: list[str], label: str) -> None:
        self._log, self._label = log, label

    def __enter__(self) -> None:
        self._log.append(f"+{self._label}")

    def __exit__(self, *_: object) -> None:
        self._log.append(f"-{self._label}")


@pytest.fixture
def torch() -> Any:
    return require_module("torch")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    entered: list[str] = []
    monkeypatch.setattr(module_spans, "span", lambda label: Recorded(entered, label))
    return entered


@pytest.fixture
def nested(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 2))


def add_both(spans: ForwardSpans, model: Any) -> None:
    spans.add(model, "outer")
    spans.add(model[0], "inner")


def test_each_forward_has_a_span(torch: Any, log: list[str], nested: Any) -> None:
    spans = ForwardSpans()
    add_both(spans, nested)
    nested(torch.ones(2))
    spans.remove()
    nested(torch.ones(2))

    assert log == ["+outer", "+inner", "-inner", "-outer"]


def test_only_outermost_forwards_have_spans_if_asked(torch: Any, log: list[str], nested: Any) -> None:
    spans = ForwardSpans(outermost=True)
    add_both(spans, nested)
    nested(torch.ones(2))
    nested[0](torch.ones(2))

    assert log == ["+outer", "-outer", "+inner", "-inner"]


@pytest.mark.parametrize("prepend", [False, True])
def test_a_hook_that_raises_leaves_the_spans_balanced(torch: Any, log: list[str], nested: Any, prepend: bool) -> None:
    def fails(*_: object) -> None:
        raise ValueError("the user's")

    spans = ForwardSpans(outermost=True)
    add_both(spans, nested)
    hook = nested.register_forward_pre_hook(fails, prepend=prepend)
    with pytest.raises(ValueError, match="the user's"):
        nested(torch.ones(2))
    hook.remove()
    log.clear()
    nested(torch.ones(2))

    assert log == ["+outer", "-outer"]


def test_a_recomputed_checkpoint_has_no_span(torch: Any, log: list[str], nested: Any) -> None:
    spans = ForwardSpans(outermost=True)
    spans.add(nested, "outer")
    torch.utils.checkpoint.checkpoint(nested, torch.ones(2), use_reentrant=False).sum().backward()

    assert log == ["+outer", "-outer"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
def test_a_module_that_takes_no_hooks_has_no_span(torch: Any, log: list[str], nested: Any) -> None:
    scripted = torch.jit.trace(nested, torch.ones(2))
    ForwardSpans().add(scripted, "outer")
    scripted(torch.ones(2))

    assert log == []
