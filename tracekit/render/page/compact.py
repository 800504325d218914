"""Shorten the page's scripts and styles: without comments, without white space that means nothing, and with short
declarations.

The sources stay readable and the page stays small, with no tool that must be installed. This is no general minifier:
it expects sources as those in `assets/` are. Statements there end with semicolons, and no body is an empty statement.
"""

from __future__ import annotations

import re

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
_OPENING, _CLOSING = frozenset("{}([,;:?=&|"), frozenset("})],;:?=&|.")


def compact_script(text: str) -> str:
    """Return a script without comments and needless white space. Comments that begin with `/*!`, licences, stay.

    `const` becomes `let`, and a declaration that follows another one becomes part of it.
    """
    return _compact(text, 0, "")[0]


def compact_style(text: str) -> str:
    """Return a style sheet without comments and needless white space."""
    text = re.sub(r"/\*(?!!).*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ?([{};,]) ?", r"\1", text)
    return re.sub(r": ", ":", text).replace(";}", "}")


def _compact(text: str, at: int, until: str) -> tuple[str, int]:
    """Return the code from `at` to an unmatched `until`, made shorter, and where it ends; "" is the end of the text."""
    written: list[str] = []
    last, gap, depth = ";", "", 0
    declares = [False]  # for each open bracket, whether the statement in it is a declaration of constants
    while at < len(text):
        expression = _REGULAR_EXPRESSION.match(text, at) if last in _BEFORE_REGULAR_EXPRESSION else None
        if text[at] == "`":
            kind, (piece, at) = "text", _compact_template(text, at)
        else:
            match = expression or _TOKEN.match(text, at)
            assert match is not None, at  # `sign` matches whatever is left
            kind, piece, at = match.lastgroup or "text", match.group(), match.end()
        if kind in ("space", "comment"):
            gap = "\n" if "\n" in gap + piece else " "
            continue
        depth += (piece == "{") - (piece == "}")
        if piece == until and depth < 0:
            break
        if piece == "const" and last == ";" and declares[-1]:
            written.pop()
            piece, gap = ",", ""
        elif last in ";{" or (last == "}" and kind == "word"):  # a statement begins
            declares[-1] = piece == "const"
        if piece in ("{", "(", "["):
            declares.append(False)
        elif piece in ("}", ")", "]") and len(declares) > 1:
            declares.pop()
        piece = "let" if piece == "const" else piece
        if gap and (separator := _separator(last, piece[0], gap)):
            written.append(separator)
        if (piece == "}" and last in ";,") or (piece == "]" and last == ","):
            while written.pop() != last:
                pass
        if piece == ">" and _is_one_parameter(written[-5:]):
            written[-4:-1] = written[-3:-2]
        written.append(piece)
        last, gap = piece[-1], ""
    return "".join(written), at


def _compact_template(text: str, start: int) -> tuple[str, int]:
    """Return the template literal that begins at `start`, with shorter expressions in it, and where it ends."""
    written, at = ["`"], start + 1
    while text[at] != "`":
        if text.startswith("${", at):
            code, at = _compact(text, at + 2, "}")
            written.append(f"${{{code}}}")
        else:
            end = at + (2 if text[at] == "\\" else 1)
            written.append(text[at:end])
            at = end
    return "".join([*written, "`"]), at + 1


def _is_one_parameter(tokens: list[str]) -> bool:
    """Return whether tokens before the `>` of an arrow are one parameter in needless parentheses, and its `=`.

    They are needed after a word, such as `return` or `async`, from which they separate the parameter.
    """
    before, *rest = tokens if len(tokens) == 5 else (";", *tokens)
    return [*rest[:1], *rest[2:]] == ["(", ")", "="] and rest[1].isidentifier() and not before[-1].isalnum()


def _separator(last: str, following: str, gap: str) -> str:
    """Return what has to stand between two tokens: nothing, a space, or the end of a line."""
    if last in _OPENING or following in _CLOSING:
        return ""
    if gap == "\n":
        return gap
    joins = (last.isalnum() or last in "_$") and (following.isalnum() or following in "_$")
    return " " if joins or (last == following and last in "+-/") else ""
