"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from click import ParamType as ParamType
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from tracekit.loading.options import StepSelection
    from tracekit.loading.workers import Progress
else:

    class ParamType(click.ParamType):
        """click's type of a value, which takes the type that it returns in brackets only since click 8.4."""

        def __class_getitem__(cls, returned: object) -> type[ParamType]:
            return cls


_HIGHEST_RANK = 1 << 20
_LARGEST_AMOUNT = 1e18
_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}

F = TypeVar("F", bound=Callable[..., Any])


class Command(click.Command):
    """A command whose help has its own options first, then those that many commands share, by their `group`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(parameter, "group", "Options"), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


class RunOption(click.Option):
    """An option that says which run and which of its ranks."""

    group = "Which run"


class ReadingOption(click.Option):
    """An option that says how files are read."""

    group = "How files are read"


class RankSet(ParamType[frozenset[int]]):
    """`0-7,12`: ranks and ranges of ranks, including both ends."""

    name = "ranks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        ranks: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
            if match is None:
                self.fail(f"{value!r} is not a list of ranks such as 0-7,12", param, ctx)
            first, last = int(match.group(1)), int(match.group(2) or match.group(1))
            if last < first or last > _HIGHEST_RANK:
                self.fail(f"{part!r} is not a range of ranks", param, ctx)
            ranks.update(range(first, last + 1))
        return frozenset(ranks)


class StepRange(ParamType["StepSelection"]):
    """`10:20`: steps 10 to 19; either end may be left out. `recording`: the whole recording as one span."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StepSelection:
        from tracekit.loading.options import StepSelection

        if value == "recording":
            return StepSelection(whole=True)
        match = re.fullmatch(r"(\d*):(\d*)", str(value)) or re.fullmatch(r"(\d+)()", str(value))
        if match is None:
            self.fail(f"{value!r} is neither a range such as 10:20, a step, nor 'recording'", param, ctx)
        first = int(match.group(1)) if match.group(1) else None
        if first is not None and match.group(2) and int(match.group(2)) <= first:
            self.fail(f"{value!r} holds no step; the second number is the first step after the range", param, ctx)
        if ":" not in str(value):
            assert first is not None
            return StepSelection(first=first, stop=first + 1)
        return StepSelection(first=first, stop=int(match.group(2)) if match.group(2) else None)


class Sections(ParamType[tuple[str, ...]]):
    """`breakdown,overlap`: names of sections, which the analysis checks."""

    name = "sections"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return tuple(part.strip() for part in str(value).split(",") if part.strip())

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from tracekit.explain.sections import SECTIONS

        *given, begun = incomplete.split(",")
        return [CompletionItem(",".join([*given, name])) for name in SECTIONS if name.startswith(begun)]


class Amount(ParamType[float]):
    """A number above 0, such as 1.2e15."""

    name = "amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            amount = float(value)
        except ValueError:
            amount = math.nan
        if not 0 < amount < _LARGEST_AMOUNT:
            self.fail(f"{value!r} is not a number above 0, such as 1.2e15", param, ctx)
        return amount


class Duration(ParamType[int]):
    """`10us`: a duration with its unit (ns, us, ms, s), converted to nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ns|us|ms|s)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration with its unit, such as 10us", param, ctx)
        return round(float(match.group(1)) * _NANOSECONDS[match.group(2)])


class Share(ParamType[float]):
    """`3%` or 0.03: a fraction of 1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not 0 < share < 1:
            self.fail(f"{value!r} is not a share between 0 and 1, such as 3% or 0.03", param, ctx)
        return share


AMOUNT, DURATION, RANKS, STEPS, SECTIONS = Amount(), Duration(), RankSet(), StepRange(), Sections()
SHARE = Share()


def output_options(formats: str, *, several: bool = False) -> Callable[[F], F]:
    """Return what adds the options that choose the format and the file of a result, or `several` files."""
    name, more = ("outputs", "; may be given again") if several else ("output", "")
    what, file = f"Write to FILE {formats}{more}.", click.Path(path_type=Path)
    return lambda command: apply_decorators(
        command,
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("-o", "--output", name, type=file, multiple=several, metavar="FILE", help=what),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
    )


def apply_decorators(command: F, *decorators: Callable[[F], F]) -> F:
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@contextmanager
def progress_on_stderr(what: str) -> Iterator[Progress | None]:
    """Give the block a function that draws a progress bar over ranks; None where stderr is no terminal.

    The bar is imported at the first call, because that takes 30 ms: a run that is in the cache needs none.
    """
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as bars:

        @cache
        def bar() -> tuple[Bar, TaskID]:
            from rich.console import Console  # noqa: TID251 (it draws no text of a trace)
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            started = bars.enter_context(Bar(*columns, console=Console(stderr=True), transient=True))
            return started, started.add_task(what, total=None)

        def draw(done: int, total: int) -> None:
            started, task = bar()
            started.update(task, completed=done, total=total)

        yield draw


def terminal_format(stream: TextIO | None = None) -> dict[str, Any]:
    """Return the width and color of a stream, by default stdout, as keyword arguments of the terminal renderers."""
    color = (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR")
    return {"width": max(shutil.get_terminal_size((80, 24)).columns, 60), "color": color}


def text_format(output: Path | None) -> dict[str, Any]:
    """Return the width and color of a text that goes to a file, or to stdout without one, likewise."""
    return terminal_format() if output is None else {"width": 80, "color": False}
