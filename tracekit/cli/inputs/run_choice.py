"""Which run a command is about, how it is read, and to which files its results go.

The argument RUN and the options that most commands share become a `RunChoice`: the run, the workers that read it, and
the cache that they use. Commands that compare runs get their reports from `read_reports`. A result may go to files of
several formats at once; the suffix of each says which.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from tracekit.cli.inputs.echo import echo_drawn, echo_json, echo_written, write_with
from tracekit.cli.inputs.options import AMOUNT, RANKS, ReadingOption, RunOption, apply_decorators, progress_on_stderr

if TYPE_CHECKING:
    from tracekit.explain.section import KnownWork
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.model.names.pseudonyms import Pseudonyms
    from tracekit.model.run import Run
    from tracekit.rank.communication_rules import CommunicationRule
    from tracekit.read.cache.cache_dir import DecodedSpool
    from tracekit.read.cache.store import CacheChoice
    from tracekit.render.page.lanes import LaneReader
    from tracekit.report.report import Report
    from tracekit.report.step_lanes import StepLanes, StepTime


F = TypeVar("F", bound=Callable[..., Any])

_run_option, _reading_option = partial(click.option, cls=RunOption), partial(click.option, cls=ReadingOption)

_READING_OPTIONS = (
    _run_option("--ranks", type=RANKS, metavar="0-7", help="Only these ranks."),
    _run_option("--ranks-from", metavar="REGEX", help="Its group is the rank, in paths of files that name none."),
    _reading_option("--jobs", type=click.IntRange(min=1), metavar="N", help="Number of worker processes."),
    _reading_option(
        "--communication-rule",
        multiple=True,
        metavar="REGEX=KIND",
        help="Kernels named so communicate, e.g. '^my_ring=all_to_all', or =compute.",
    ),
    _reading_option(
        "--step-anchor", metavar="REGEX", help="A step begins with each event on the host that is named so."
    ),
    _reading_option(
        "--limit",
        multiple=True,
        metavar="NAME=N",
        help="What a trace file may cost, e.g. ratio=1000 (docs/settings.md).",
    ),
    _reading_option("--cache-dir", metavar="DIR", help="Cache folder (see tracekit cache --help)."),
    _reading_option("--no-cache", is_flag=True, help="Neither read nor write the cache."),
    _reading_option(
        "--anonymize", is_flag=True, help="Replace names of hosts, paths, modules and groups in all outputs."
    ),
)


@dataclass(frozen=True, kw_only=True)
class RunChoice:
    """The values of RUN and its options; None where an option was not given."""

    paths: tuple[str, ...]
    run: str | None
    attempt: int | None
    ranks: frozenset[int] | None
    jobs: int | None
    cache: CacheChoice
    communication_rules: tuple[CommunicationRule, ...] = ()
    step_anchor: str | None = None
    anonymize: bool | Pseudonyms = False
    limits: tuple[str, ...] = ()
    ranks_from: str | None = None

    @property
    def shown_paths(self) -> tuple[str, ...]:
        """The paths as outputs may show them."""
        if not self.anonymize:
            return self.paths
        from tracekit.model.names.pseudonyms import Pseudonyms

        known = self.anonymize if isinstance(self.anonymize, Pseudonyms) else Pseudonyms.of_names({}, [self.paths])
        return tuple(known.name("run", path) for path in self.paths)

    @property
    def argv(self) -> list[str]:
        """The arguments that choose the same run and ranks, with the same rules, steps and limits."""
        ranks = None if self.ranks is None else ",".join(map(str, sorted(self.ranks)))
        chosen = {
            "--run": self.run,
            "--attempt": self.attempt,
            "--ranks": ranks,
            "--ranks-from": self.ranks_from,
            "--step-anchor": self.step_anchor,
        }
        options = [f"{option}={value}" for option, value in chosen.items() if value is not None]
        options += [f"--communication-rule={rule.text}" for rule in self.communication_rules]
        return [*self.shown_paths, *options, *(f"--limit={limit}" for limit in self.limits)]

    def of_path(self, path: str) -> RunChoice:
        """Return the choice of the newest run of another path, with the same ranks and ways of reading them."""
        return replace(self, paths=(path,), run=None, attempt=None)

    def load(self, options: SummaryOptions | None = None, spool: DecodedSpool | None = None) -> Run:
        """Read it, with a progress bar; workers use the `spool`. Raises what `analysis.load` does."""
        from tracekit.loading.load import load

        anonymize = self.pseudonyms_with() if self.anonymize is True else self.anonymize
        with self.workers() as workers:
            return load(
                self.paths,
                run=self.run,
                attempt=self.attempt,
                ranks=self.ranks,
                ranks_from=self.ranks_from,
                options=self.with_rules(options),
                cache=self.cache,
                spool=spool,
                anonymize=anonymize,
                **workers,
            )

    def pseudonyms_with(self, *others: RunChoice) -> Pseudonyms:
        """Return pseudonyms for the names in this run and others. From now on messages are written with them, too."""
        from tracekit.loading.load import RunPaths, pseudonyms_of

        chosen = [
            RunPaths(paths=each.paths, run=each.run, attempt=each.attempt, ranks_from=each.ranks_from)
            for each in (self, *others)
        ]
        with self.workers() as workers:
            pseudonyms = pseudonyms_of(chosen, **workers)
        write_with(pseudonyms)
        return pseudonyms

    def with_rules(self, options: SummaryOptions | None = None) -> SummaryOptions:
        """Return the options with the rules and the anchor that were given on the command line, by default of all."""
        from tracekit.loading.options import SummaryOptions

        return (options or SummaryOptions()).with_rules(self.communication_rules).with_step_anchor(self.step_anchor)

    def lane_reader(self, options: SummaryOptions) -> LaneReader:
        """Return how the page reads some ranks again."""

        def read_lanes(run: Run, times: Sequence[StepTime], most_operations: int) -> list[StepLanes]:
            from tracekit.report.step_lanes import read_step_lanes

            with self.workers() as workers:
                return read_step_lanes(
                    run, times, most_operations=most_operations, options=self.with_rules(options), **workers
                )

        return read_lanes

    @contextmanager
    def workers(self) -> Iterator[dict[str, Any]]:
        """Yield the workers that read the ranks, as keyword arguments of `load`."""
        with progress_on_stderr("reading ranks") as progress:
            yield {"jobs": self.jobs, "progress": progress}


def _ensure_cache_dir(cache_dir: str) -> Path:
    """Create the folder if need be and return it. Raises UsageError if it cannot be written.

    An option, a variable or a file may have named it.
    """
    from tracekit.errors import UsageError

    hint = "give a folder that can be written, or --no-cache"
    if not cache_dir:
        raise UsageError("cache folder: its name is empty", hint="is a variable of the shell not set?")
    folder = Path(cache_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cache folder {cache_dir}: {reason}", hint=hint) from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cache folder {cache_dir}: not writable", hint=hint)
    return folder


def _is_typed(parameter: str) -> bool:
    """Return whether the option was given on the command line, and is not a setting or left out."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _rules(texts: tuple[str, ...]) -> tuple[CommunicationRule, ...]:
    """Return the rules that were given. Raises UsageError for a text that is none."""
    if not texts:
        return ()
    from tracekit.rank.communication_rules import parse_rule

    return tuple(parse_rule(text) for text in texts)


def _set_limits(texts: tuple[str, ...]) -> None:
    """Let these limits hold, in workers too, until the command ends. Raises UsageError for a text that is none."""
    if not texts:
        return
    from tracekit.limits import VARIABLE, parse_limits

    parse_limits(texts)
    before = os.environ.get(VARIABLE, "")
    os.environ[VARIABLE] = " ".join(texts)
    click.get_current_context().call_on_close(lambda: os.environ.update({VARIABLE: before}))


_CHOOSING_OPTIONS = (
    _run_option("--run", metavar="ID", help="The run to take; the newest by default."),
    _run_option("--attempt", type=click.IntRange(min=0), metavar="N", help="The attempt of an elastic job."),
)


def run_options(metavar: str = "RUN...", *, required: bool = True, several: bool = False) -> Callable[[F], F]:
    """Return what adds RUN and its options to a command, which gets them as its first argument, a `RunChoice`.

    several: each path is a run of its own, see `of_path`.
    """
    path = click.Path(readable=False)  # for the shell, which completes it; reading says what is wrong with one
    argument = click.argument("paths", nargs=-1, required=required, metavar=metavar, type=path)
    options = _READING_OPTIONS if several else (*_CHOOSING_OPTIONS, *_READING_OPTIONS)
    return lambda command: apply_decorators(_with_choice(command), argument, *options)


def _with_choice(command: F) -> F:
    """Return a command that takes the options of a `RunChoice`, and passes them on as one."""

    @wraps(command)
    def with_choice(
        *,
        paths: tuple[str, ...],
        run: str | None = None,
        attempt: int | None = None,
        ranks: frozenset[int] | None,
        ranks_from: str | None,
        jobs: int | None,
        cache_dir: str | None,
        no_cache: bool,
        communication_rule: tuple[str, ...],
        step_anchor: str | None,
        anonymize: bool,
        limit: tuple[str, ...],
        **options: Any,
    ) -> Any:
        from tracekit.errors import UsageError
        from tracekit.model.names.pseudonyms import Pseudonyms
        from tracekit.process_tuning import tune_cli_process

        tune_cli_process()
        if anonymize:
            write_with(Pseudonyms.of_names({}, [paths]))  # until all names are known
        if _is_typed("no_cache") and _is_typed("cache_dir"):
            raise UsageError("--no-cache and --cache-dir contradict each other", hint="leave one out")
        if _is_typed("cache_dir"):
            no_cache = False  # of the settings
        _set_limits(limit)
        choice = RunChoice(
            paths=paths,
            run=run,
            attempt=attempt,
            ranks=ranks,
            jobs=jobs,
            cache=False if no_cache else True if cache_dir is None else _ensure_cache_dir(cache_dir),
            communication_rules=_rules(communication_rule),
            step_anchor=step_anchor,
            anonymize=anonymize,
            limits=limit,
            ranks_from=ranks_from,
        )
        return command(choice, **options)

    return cast(F, with_choice)


def work_options() -> Callable[[F], F]:
    """Return what adds the options that say what the model computes: the command gets `work`, a `KnownWork`."""
    return lambda command: apply_decorators(
        _with_work(command),
        click.option("--flops-per-step", type=AMOUNT, metavar="F", help="The model's FLOPs a step and rank, for MFU."),
        click.option("--peak-tflops", type=AMOUNT, metavar="P", help="Peak of a rank's device, in TFLOP/s, for MFU."),
    )


def _with_work(command: F) -> F:
    @wraps(command)
    def with_work(*arguments: Any, flops_per_step: float | None, peak_tflops: float | None, **options: Any) -> Any:
        from tracekit.explain.section import KnownWork

        peak = None if peak_tflops is None else peak_tflops * 1e12
        work = KnownWork(flops_per_step=flops_per_step, peak_flops_per_s=peak)
        return command(*arguments, work=work, **options)

    return cast(F, with_work)


def refuse_suffixes(files: Sequence[Path], suffixes: Sequence[str]) -> None:
    """Raise UsageError for a file whose name ends in none of the suffixes."""
    from tracekit.errors import UsageError

    for file in files:
        if file.suffix not in suffixes:
            raise UsageError(f"-o {file}: the name does not end in {', '.join(suffixes)}", hint="it says the format")


def write_results(files: Sequence[Path], render: Callable[[str], str], *, force: bool) -> None:
    """Write what `render` returns for the suffix of each file. Raises OutputError."""
    for file in files:
        write_text(file, render(file.suffix), force=force)


def write_result(output: Path | None, text: str, *, is_json: bool, force: bool) -> None:
    """Write a result to its file, or to stdout without one. Raises OutputError."""
    if output is not None:
        write_text(output, text, force=force)
    elif is_json:
        echo_json(text)
    else:
        echo_drawn(text)


def write_text(file: Path, text: str, *, force: bool) -> None:
    """Write a file, and say so on stderr. Raises OutputError."""
    from tracekit.render.output import new_file

    with new_file(file, force=force) as stream:
        stream.write(text.encode())
    echo_written(file)


def read_reports(
    choices: Sequence[RunChoice],
    steps: StepSelection | None,
    sections: Iterable[str],
    work: KnownWork | None = None,
) -> list[Report]:
    """Return the report of each run, with some sections. Raises what loading a run raises.

    Everything is read of a run, so that `tracekit analyze` finds its summaries in the cache, and the other way round.
    """
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.report.report import analyze

    options = SummaryOptions(steps=steps or StepSelection())
    first, *others = choices
    if first.anonymize:
        pseudonyms = first.pseudonyms_with(*others)
        choices = [replace(choice, anonymize=pseudonyms) for choice in choices]
    return [analyze(choice.load(options), only=sections, work=work) for choice in choices]
