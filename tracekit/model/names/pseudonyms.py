"""What names are replaced by where a run is anonymised: `host-1`, `module-03.0.module-11`, `group-b`.

Numbers, and letters of groups, are given in the order of the names, and are as long as the last one. So pseudonyms sort
as the names did. They say nothing else of a name, and no key has to be kept secret.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, product
from string import ascii_lowercase
from typing import Literal, Protocol, get_args

from tracekit.model.names.mesh import parallelism_of_dimension, parallelism_of_group
from tracekit.model.names.modules import names_together
from tracekit.model.notes import Note

KindOfName = Literal[
    "host", "module", "group", "annotation", "function", "category", "worker", "thread", "file", "path", "job", "run"
]
KINDS: tuple[KindOfName, ...] = get_args(KindOfName)
NAMES_OF_ANY_MACHINE = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", ""})

# Names that say nothing of a model: what every module has, and what torch calls a group or a mesh.
_LEAVES = frozenset({"weight", "bias"})
_NAME_OF_TORCH = re.compile(r"|default_pg|undefined|\d+|mesh_dim_\d+|mesh_default|dim_\d+")
_MESH_PREFIX = "mesh_"
_NUMBER = re.compile(r"(?<![^\W_])\d+(?![^\W_])|\d+$")
# A word of a text, with what a name may have in its middle: "blocks.0.up", "node-3".
_WORD = re.compile(r"\w+(?:[.\-:/@]+\w+)*")
_SEPARATORS = (r"[:/@]+", r"\.+", r"-+")
_PATH_BEGINS = r"(?<![\w.])(?:~|\.{0,2})/"
_IN_PATH = r"[^\s'\"`:;,()\[\]<>|*?]"
# A path in quotes has all that is between them. Any other goes on over a space if one of the next words has a slash
# in its middle: "/home/john smith/x.py". It may take too much, as in "/home/x and/or y", which shows no name.
_PATH = re.compile(
    rf"(?<=['\"]){_PATH_BEGINS}[^'\"\n]+(?=['\"])"
    rf"|{_PATH_BEGINS}{_IN_PATH}+(?:(?: (?![~.]*/){_IN_PATH}+)* (?![~.]*/){_IN_PATH}+/{_IN_PATH}*)?"
)
_LEAST_OF_A_NAME = 3  # shorter ones are replaced only where they are known to be names


class Namer(Protocol):
    """What replaces names, or collects them."""

    def name(self, kind: KindOfName, name: str) -> str: ...

    def text(self, text: str) -> str: ...


@dataclass(kw_only=True)
class NameCollector:
    """Collects the names that would be replaced, and replaces none."""

    names: dict[KindOfName, set[str]] = field(default_factory=lambda: defaultdict(set))

    def name(self, kind: KindOfName, name: str) -> str:
        if name:
            self.names[kind].add(name)
        return name

    def text(self, text: str) -> str:
        self.names["path"].update(_PATH.findall(text))
        return text


@dataclass(frozen=True, kw_only=True, repr=False)
class Pseudonyms:
    """The pseudonyms of a command's runs. Its `repr` has no name.

    Attributes:
        numbered: the pseudonym of each name that was collected, by its kind.
        typed: the pseudonym of each text of the command line that is one, for messages.
    """

    numbered: Mapping[KindOfName, Mapping[str, str]]
    typed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_names(cls, names: Mapping[KindOfName, Iterable[str]], runs: Iterable[Sequence[str]] = ()) -> Pseudonyms:
        """Return pseudonyms for these names, and for the paths of each run in the order in which they were typed."""
        numbered = {kind: _numbered(kind, sorted(set(names.get(kind, ())) - {""})) for kind in KINDS}
        paths = dict.fromkeys(path for of_run in runs for path in of_run)
        return cls(numbered=numbered | {"run": _numbered("run", [*paths])})

    def name(self, kind: KindOfName, name: str) -> str:
        """Return the pseudonym of a name; one without a number if it was not there when names were collected."""
        return self.numbered[kind].get(name, f"{kind}-x") if name else name

    def text(self, text: str) -> str:
        """Return a sentence in which paths and all known names are replaced."""
        if self._literals is not None:
            text = self._literals.sub(lambda match: self._literal_names[match[0]], text)
        text = _PATH.sub(lambda match: self.name("path", match[0]), text)
        return _WORD.sub(lambda match: self._word(match[0]), text)

    def note(self, note: Note) -> Note:
        """Return a note about a file that has a pseudonym."""
        file = None if note.file is None else self.name("file", note.file)
        return replace(note, file=file, text=self.text(note.text))

    def _word(self, word: str, separators: Sequence[str] = _SEPARATORS) -> str:
        """Return a word with the pseudonym of it, or of its parts, as in `blocks.0.up` or `node-3:22`."""
        if word in self._words or not separators:
            return self._words.get(word, word)
        separator, *finer = separators
        return "".join(self._word(part, finer) for part in re.split(f"({separator})", word))

    @cached_property
    def _literal_names(self) -> dict[str, str]:
        named = {**self.typed, **self.numbered["file"], **self.numbered["run"]}
        return {name: pseudonym for name, pseudonym in named.items() if name != "."}

    @cached_property
    def _literals(self) -> re.Pattern[str] | None:
        texts = sorted(self._literal_names, key=lambda text: (-len(text), text))
        return re.compile("|".join(rf"(?<![\w.-]){re.escape(text)}(?![\w-])" for text in texts)) if texts else None

    @cached_property
    def _words(self) -> dict[str, str]:
        kinds: tuple[KindOfName, ...] = ("module", "group", "annotation", "function", "worker", "host")
        words = {name: pseudonym for kind in kinds for name, pseudonym in self.numbered[kind].items()}
        return {name: pseudonym for name, pseudonym in words.items() if len(name) >= _LEAST_OF_A_NAME}


def _numbered(kind: KindOfName, names: list[str]) -> dict[str, str]:
    if kind == "group":  # a number in a group's name has a meaning
        width = next(width for width in count(1) if len(ascii_lowercase) ** width >= len(names))
        letters = product(ascii_lowercase, repeat=width)
        return {name: f"{kind}-{''.join(next(letters))}" for name in names}
    digits = len(str(len(names)))
    return {name: f"{kind}-{number:0{digits}}" for number, name in enumerate(names, start=1)}


def host_name(namer: Namer, name: str) -> str:
    """Return the name of a host; one that any machine may have stays."""
    return name if name in NAMES_OF_ANY_MACHINE else namer.name("host", name)


def module_name(namer: Namer, names: str) -> str:
    """Return the name of a module, or of several such as `a, b and 3 more`, or of a parameter; numbers stay."""
    listed, more = names_together(names)
    renamed = ", ".join(".".join(_module_part(namer, part) for part in each.split(".")) for each in listed)
    return f"{renamed} and {more} more" if more else renamed


def _module_part(namer: Namer, part: str) -> str:
    return part if part.isdigit() or part in _LEAVES else namer.name("module", part)


def group_name(namer: Namer, name: str) -> str:
    """Return the name or description of a group, or of a dimension of a mesh.

    One that only says a kind of parallelism stays (`tp`, `mesh_dp_shard`), as do torch's own (`default_pg`).
    """
    head, sign, number = name.partition("#")
    if _NAME_OF_TORCH.fullmatch(head) or parallelism_of_group(head) or parallelism_of_dimension(head):
        return name if number.isdigit() or not sign else f"{head}#{namer.name('group', number)}"
    if name.startswith(_MESH_PREFIX):  # the same pseudonym as that of the mesh's dimension
        return f"{_MESH_PREFIX}{group_name(namer, name.removeprefix(_MESH_PREFIX))}"
    numbers = _NUMBER.findall(name)  # of one group among others along a dimension
    if not numbers and re.search(r"\d", name):  # a name with a number is no dimension's
        numbers = ["0"]
    return "-".join([namer.name("group", _NUMBER.sub("#", name)), *numbers])
