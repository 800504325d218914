"""The fields of dataclasses, with what their docstrings say of each under `Attributes:`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from msgspec import inspect as types

from docs.reference.markdown import code, table

__all__ = ["Field", "Struct", "describe", "struct_pages"]

_ATTRIBUTE = re.compile(r"^(\w[\w, ]*): (.*)$")
_PLAIN = {types.IntType: "int", types.FloatType: "float", types.StrType: "str", types.BoolType: "bool"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a struct.

    Attributes:
        type: in the words of JSON, such as "list of int" or "str or null"; names of structs are links.
        default: as JSON; None where the field is always there.
        meaning: "" where the docstring has none.
    """

    name: str
    type: str
    default: str | None
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Struct:
    """A struct with its fields, and the structs that these are made of."""

    name: str
    meaning: str
    fields: tuple[Field, ...]
    parts: tuple[type, ...]


def struct_pages(*roots: type, level: int = 3) -> str:
    """Return a chapter for each of the structs and for those that they are made of, each once."""
    return "\n\n".join(_chapter(struct, "#" * level) for struct in _with_parts(roots))


def describe(struct: type) -> Struct:
    """Return the fields of one struct with their types and meanings."""
    info = types.type_info(struct)
    assert isinstance(info, types.DataclassType)
    summary, meanings = _docstring(struct)
    parts: list[type] = []
    fields = tuple(
        Field(
            name=field.encode_name,
            type=_type(field.type, parts),
            default=None if field.required else _default(field),
            meaning=meanings.get(field.name, ""),
        )
        for field in info.fields
    )
    return Struct(name=struct.__name__, meaning=summary, fields=fields, parts=tuple(parts))


def _with_parts(roots: tuple[type, ...]) -> Iterator[Struct]:
    waiting, seen = [*roots], set(roots)
    while waiting:
        struct = describe(waiting.pop(0))
        yield struct
        new = [part for part in dict.fromkeys(struct.parts) if part not in seen]
        waiting += new
        seen |= {*new}


def _chapter(struct: Struct, heading: str) -> str:
    rows = [
        (code(field.name), field.type, "" if field.default is None else code(field.default), field.meaning)
        for field in struct.fields
    ]
    return "\n\n".join(
        [f"{heading} {struct.name}", struct.meaning, table(("field", "type", "default", "meaning"), rows)]
    )


def _type(info: types.Type, parts: list[type]) -> str:
    """Return the type in words; the structs in it are added to `parts`."""
    match info:
        case types.UnionType():
            return " or ".join(_type(each, parts) for each in info.types)
        case types.ListType():
            return f"list of {_type(info.item_type, parts)}"
        case types.TupleType():
            return f"[{', '.join(_type(each, parts) for each in info.item_types)}]"
        case types.DictType():
            return f"map of {_type(info.value_type, parts)}"
        case types.LiteralType():
            return " or ".join(code(f'"{value}"') for value in info.values)
        case types.DataclassType():
            parts.append(info.cls)
            return f"[{info.cls.__name__}](#{info.cls.__name__.lower()})"
        case types.NoneType():
            return "null"
        case _:
            return _PLAIN[type(info)]


def _default(field: types.Field) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return msgspec.json.encode(value).decode()


def _docstring(struct: type) -> tuple[str, dict[str, str]]:
    """Return the docstring before `Attributes:`, and what that says of each field."""
    without = (struct.__doc__ or "").startswith(f"{struct.__name__}(")  # what `dataclass` writes, its parameters
    summary, _, listed = ("" if without else inspect.getdoc(struct) or "").partition("Attributes:")
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in listed.splitlines():
        if found := _ATTRIBUTE.match(line.removeprefix("    ")):
            names = found[1].split(", ")
            meanings |= dict.fromkeys(names, found[2])
        elif line.strip():
            meanings |= {name: f"{meanings[name]} {line.strip()}" for name in names}
    return " ".join(summary.split()), {name: _sentence(text) for name, text in meanings.items()}


def _sentence(text: str) -> str:
    """Return the text with a capital letter and a full stop, and with JSON's word for None."""
    if not text:
        return ""
    text = re.sub(r"\bNone\b", "null", text)
    # A field's name, a quoted word or a number stays as it is.
    first = text[0].upper() + text[1:] if re.match(r"[a-z]+\b(?!_)", text) else text
    return first if first.endswith((".", "?", "!")) else f"{first}."
