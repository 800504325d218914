"""Kinds of communication and sizes, from names of kernels, collectives and data types."""

from __future__ import annotations

import re

import pytest

from tracekit.errors import UsageError
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT
from tracekit.rank.communication_rules import (
    COMPUTE,
    CommunicationRule,
    bytes_per_element,
    parse_rule,
    rule_finder,
    size_in_bytes,
)


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        ("Float", 4), ("float", 4), ("torch.float32", 4), ("c10::Half", 2), ("BFloat16", 2), ("c10::BFloat16", 2),
        ("long int", 8), ("Long", 8), ("Byte", 1), ("unsigned char", 1), ("Float8_e4m3fn", 1), ("Double", 8),
        ("Bool", 1), ("ComplexFloat", 8), ("Odd", None), ("", None), ("TensorList", None),
    ],
)  # fmt: skip
def test_bytes_per_element(dtype: str, width: int | None) -> None:
    assert bytes_per_element(dtype) == width


def test_size_in_bytes() -> None:
    assert size_in_bytes(3, "Float") == 12
    assert size_in_bytes(0, "Float") == 0
    assert size_in_bytes(3, "Odd") == size_in_bytes(-1, "Float") == size_in_bytes(2**60, "Float") == ABSENT


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "unclassified"] + [COMPUTE])
def test_a_rule_of_the_user(kind: str) -> None:
    """The kind is what follows the last =, so that the pattern may have some."""
    assert parse_rule(f"a<b=1>={kind}") == CommunicationRule("a<b=1>", kind)
    assert parse_rule(f"a={kind.replace('_', '-')}") == CommunicationRule("a", kind)
    assert parse_rule(parse_rule(f"^a={kind}").text) == CommunicationRule("^a", kind)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("my_ring", "not of the form regex=kind"),
        ("=all_reduce", "not of the form regex=kind"),
        ("", "not of the form regex=kind"),
        ("my_ring=all_reduces", "there is no kind 'all_reduces'"),
        ("my_ring=", "there is no kind ''"),
        ("my_ring=unclassified", "there is no kind 'unclassified'"),
        ("my_(ring=all_reduce", "no regular expression"),
        ("*=all_reduce", "no regular expression"),
    ],
)
def test_a_text_that_is_no_rule_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)) as refused:
        parse_rule(text)
    assert repr(text) in refused.value.message


def test_a_rule_that_could_take_too_long_is_refused_before_it_is_used() -> None:
    with pytest.raises(UsageError, match="it could take too long: ") as refused:
        parse_rule("(" * 5000 + "=compute")
    assert len(str(refused.value)) < 400


def test_groups_in_groups_without_end_are_no_regular_expression() -> None:
    with pytest.raises(UsageError, match="no regular expression"):
        parse_rule("(" * 490 + "a" + ")" * 490 + "=compute")


def test_of_names_without_end_the_beginning_decides() -> None:
    """GIVEN names that no compiler makes THEN rules look at the beginning, as time grows faster than length."""
    whole, function = CommunicationRule("ring", "send"), CommunicationRule("(?:.*::)?ring", "recv", "x", True)
    assert rule_finder((whole,))("a" * 16_000 + "ring") == whole
    assert rule_finder((whole,))("a" * 17_000 + "ring") is None
    assert rule_finder((function,))("a::" * 300 + "ring") == function
    assert rule_finder((function,))("a::" * 400 + "ring") is None


def test_the_first_rule_decides() -> None:
    """GIVEN a rule that looks at the function only THEN words in template arguments and parameters do not count."""
    whole, function = CommunicationRule("ring", "send"), CommunicationRule("ring", "recv", "x", in_function=True)
    rule_for = rule_finder((function, whole))
    assert rule_for("void ring<int>(int)") == function
    assert rule_for("void gemm<ring>(int)") == whole
    assert rule_for("void gemm<int>(int)") is None


def test_a_rule_without_kind_takes_it_from_the_function() -> None:
    rule = CommunicationRule("mine", None)
    assert rule.kind_of("void mine_all_gather<all_reduce>(int)") == "all_gather"
    assert rule.kind_of("mine") == "unknown"
