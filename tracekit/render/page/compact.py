"""Shorten the page's scripts and styles: without comments, and without white space that means nothing.

The sources stay readable and the page stays small, with no tool that must be installed. This is no general minifier:
it expects sources whose statements end with semicolons, as those in `assets/` do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["compact_script", "compact_style"]

_TOKEN = re.compile(
    r"""
      (?P<licence> /\*!.*?\*/ )
    | (?P<comment> /\*.*?\*/ | //[^\n]* )
    | (?P<space> \s+ )
    | (?P<text> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
    | (?P<word> [\w$]+ )
    | (?P<sign> . )
    """,
    re.DOTALL | re.VERBOSE,
)
_REGULAR_EXPRESSION = re.compile(r"/(?![/*])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_BEFORE_REGULAR_EXPRESSION = frozenset("(,=:[!&|?{};>")  # after anything else a slash divides
_OPENING, _CLOSING = frozenset("{([,;:?=&|"), frozenset("})],;:?=&|.")


def compact_script(text: str) -> str:
    """Return a script without comments and needless white space. Comments that begin with `/*!`, licences, stay."""
    written: list[str] = []
    last, gap = ";", ""
    for kind, token in _tokens(text):
        if kind in ("space", "comment"):
            gap = "\n" if "\n" in gap + token else " "
            continue
        if gap:
            written.append(_separator(last, token[0], gap))
        written.append(token)
        last, gap = token[-1], ""
    return "".join(written)


def compact_style(text: str) -> str:
    """Return a style sheet without comments and needless white space."""
    text = re.sub(r"/\*(?!!).*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ?([{};,]) ?", r"\1", text)
    return re.sub(r": ", ":", text).replace(";}", "}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each token of a script."""
    at, last = 0, ";"
    while at < len(text):
        expression = _REGULAR_EXPRESSION.match(text, at) if last in _BEFORE_REGULAR_EXPRESSION else None
        if text[at] == "`":
            kind, end = "text", _template_end(text, at)
        elif expression is not None:
            kind, end = "text", expression.end()
        else:
            token = _TOKEN.match(text, at)
            assert token is not None, at  # `sign` matches whatever is left
            kind, end = str(token.lastgroup), token.end()
        yield kind, text[at:end]
        last = last if kind in ("space", "comment") else text[end - 1]
        at = end


def _template_end(text: str, start: int) -> int:
    """Return where the template literal that begins at `start` ends. Those inside of its expressions are skipped."""
    at, depth = start + 1, 0
    while depth or text[at] != "`":
        if text[at] == "\\":
            at += 1
        elif text.startswith("${", at) and not depth:
            depth, at = 1, at + 1
        elif depth and text[at] == "`":
            at = _template_end(text, at) - 1
        elif depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at + 1


def _separator(last: str, following: str, gap: str) -> str:
    """Return what has to stand between two tokens: nothing, a space, or the end of a line."""
    if last in _OPENING or following in _CLOSING:
        return ""
    if gap == "\n":
        return gap
    joins = (last.isalnum() or last in "_$") and (following.isalnum() or following in "_$")
    return " " if joins or (last == following and last in "+-/") else ""
