"""Which kernels are communication, by their names, and of which kind: rules that a user can extend.

`default_rules` lists the rules for public libraries.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tracekit.analysis.events.kernel_names import MOST_NAMES, function_of_kernel
from tracekit.errors import UsageError
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT
from tracekit.model.names.collectives import kind_of_collective
from tracekit.model.names.patterns import reason_to_refuse

__all__ = [
    "COMPUTE",
    "CommunicationRule",
    "bytes_per_element",
    "dtype_index",
    "parse_rule",
    "rule_finder",
    "size_in_bytes",
]

COMPUTE = "compute"
"""The `kind` of a rule for kernels that only sound like communication."""

# The time to match a pattern grows faster than the length of a name. No real name is that long.
_LONGEST_FUNCTION = 1_000
_LONGEST_NAME = 16_384

_SHOWN = 100  # characters of a rule in messages


@dataclass(frozen=True)
class CommunicationRule:
    """Kernels in whose name `pattern` is found (`re.search`, case sensitive) are communication of this kind.

    Attributes:
        kind: one of `KINDS`, or COMPUTE. None: as the name tells (`ncclKernel_AllReduce...`), "unknown" if it does not.
        source: the project whose kernels these are; "" for a rule of the user.
        in_function: the pattern is for the function that the name names, without template arguments and parameters
            (`function_of_kernel`), and matches it from its beginning (`re.match`).
        prepares: the kernels belong to the dispatch or combine that follows on their stream, and are of its kind.
    """

    pattern: str
    kind: str | None = None
    source: str = ""
    in_function: bool = False
    prepares: bool = False

    @property
    def text(self) -> str:
        """Return the rule as a user writes it: regex=kind."""
        return f"{self.pattern}={self.kind or 'unknown'}"

    def kind_of(self, name: str) -> str:
        """Return the kind of a kernel with this name, in which the pattern is found."""
        return self.kind if self.kind is not None else kind_of_collective(function_of_kernel(name))


RuleFinder = Callable[[str], CommunicationRule | None]


@lru_cache(8)
def rule_finder(rules: tuple[CommunicationRule, ...]) -> RuleFinder:
    """Return a function that finds the first of the rules for a kernel's name; None if none is for it."""
    compiled = [(re.compile(rule.pattern), rule) for rule in rules]

    @lru_cache(MOST_NAMES)
    def first_rule(name: str) -> CommunicationRule | None:
        function = function_of_kernel(name)[:_LONGEST_FUNCTION]
        for pattern, rule in compiled:
            found = pattern.match(function) if rule.in_function else pattern.search(name, 0, _LONGEST_NAME)
            if found:
                return rule
        return None

    return first_rule


def parse_rule(text: str) -> CommunicationRule:
    """Return the rule of `regex=kind`, such as `^my_ring=all_to_all`.

    Raises UsageError if there is no such kind, or if the pattern is no regular expression or could take too long.
    """
    pattern, separator, named = text.rpartition("=")
    kind = named.strip().replace("-", "_")
    kinds = (*(kind for kind in KINDS if kind != "unclassified"), COMPUTE)
    rule = f"rule {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'!r}"
    if not separator or not pattern:
        raise UsageError(f"{rule}: it is not of the form regex=kind", hint="such as '^my_ring=all_to_all'")
    if kind not in kinds:
        raise UsageError(f"{rule}: there is no kind {named[:_SHOWN]!r}", hint=f"there are {', '.join(kinds)}")
    if (slow := reason_to_refuse(pattern)) is not None:
        hint = "a rule is searched anywhere in the name, so a plain part of it is enough"
        raise UsageError(f"{rule}: it could take too long: {slow}", hint=hint)
    try:
        with warnings.catch_warnings(action="ignore"):  # of what other versions of Python will understand otherwise
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:  # groups in groups, and numbers of any size
        raise UsageError(f"{rule}: no regular expression: {error}", hint="put a backslash before ( [ * +") from None
    return CommunicationRule(pattern, kind)


_MAX_ELEMENTS = 1 << 56

_NAMES_OF_DTYPES = {
    "bool": "bool",
    "int8": "char int8 signedchar",
    "uint8": "byte uint8 unsignedchar",
    "int16": "short int16 shortint",
    "uint16": "uint16",
    "float16": "half float16 c10::half",
    "bfloat16": "bfloat16 c10::bfloat16",
    "int32": "int int32",
    "uint32": "uint32",
    "float32": "float float32",
    "int64": "long longint int64 longlong",
    "uint64": "uint64",
    "float64": "double float64",
    "complex64": "complexfloat c10::complex<float> complex64",
    "complex128": "complexdouble c10::complex<double> complex128",
}
_DTYPE_BY_NAME = {name: dtype for dtype, names in _NAMES_OF_DTYPES.items() for name in names.split()}
_BYTES = {dtype: int(re.sub(r"\D", "", dtype) or 8) // 8 for dtype in DTYPES}


@lru_cache(MOST_NAMES)
def dtype_index(dtype: str) -> int:
    """Return the index in `DTYPES` of a data type as torch or Kineto names it, or ABSENT."""
    bare = dtype.lower().replace(" ", "").removeprefix("torch.")
    name = "float8" if "float8" in bare else _DTYPE_BY_NAME.get(bare)
    return ABSENT if name is None else DTYPES.index(name)


def bytes_per_element(dtype: str) -> int | None:
    """Return the bytes of one element of a data type as torch or Kineto names it; None for an unknown type."""
    index = dtype_index(dtype)
    return None if index == ABSENT else _BYTES[DTYPES[index]]


def size_in_bytes(elements: int, dtype: str) -> int:
    """Return the bytes of `elements` elements; ABSENT for an unknown type or more than any machine could hold."""
    width = bytes_per_element(dtype)
    return elements * width if width is not None and 0 <= elements < _MAX_ELEMENTS else ABSENT
