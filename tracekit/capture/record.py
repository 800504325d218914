"""`tracekit record`: runs a program as Python would, and records the steps that its optimizer makes.

    python -m tracekit record train.py ARGS
    torchrun --nproc-per-node 8 -m tracekit record --steps 5 -m package.train ARGS

A step ends where the first optimizer that steps has stepped; `--step-function` names a function each call of which is a
step instead. A program that makes a probe of its own is recorded by that alone.

It needs the standard library only, and torch is imported by the program: what a program sets before that, holds.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import builtins
import contextlib
import functools
import importlib.util
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from tracekit.capture.hooks.patching import warn
from tracekit.capture.hooks.torch_compile import hide_from_compiler
from tracekit.capture.job.process import identify
from tracekit.capture.output.paths import MAX_BYTES, MIN_FREE_BYTES
from tracekit.capture.probe import check_options, probe
from tracekit.capture.probe_object import Probe, probes_created
from tracekit.capture.schedule import Schedule, schedule_from_environment
from tracekit.errors import TracekitError, UsageError, error_line

_OPTIMIZERS = "torch.optim.optimizer"
_DECORATOR = "__tracekit_step__"
_NUMBERS = {
    "skip": f"steps before the recording ({Schedule.skip})",
    "warmup": f"of the next steps, those in which the profiler warms up ({Schedule.warmup})",
    "steps": f"recorded steps ({Schedule.steps})",
    "repeat": f"number of recordings ({Schedule.repeat})",
    "every": "steps from the start of one recording to the start of the next",
    "first_step": "number of the job's step with which the program begins (the optimizer's count)",
    "max_bytes": f"the most that a rank keeps of traces ({MAX_BYTES})",
    "min_free_bytes": f"what stays free on the disk ({MIN_FREE_BYTES})",
}
_SWITCHES = {
    "stack": "record Python's stack",
    "memory": "record what the allocator holds",
    "flops": "estimate floating-point operations",
    "quiet": "say nothing at the end",
}


def main(argv: Sequence[str]) -> None:
    """Run the program that `argv` names, with the arguments behind it, and record it. Raises what it raises."""
    parser = _parser()
    options = vars(parser.parse_args(argv))
    name, arguments, is_module = (options.pop(key) for key in ("program", "arguments", "m"))
    function = options.pop("step_function", None)
    try:
        check_options(**options)
        source, program = _module(name) if is_module else _script(name)
        recorded: str | bytes | ast.Module = source
        if os.environ.get("TRACEKIT") != "0":
            own_names = {"__main__", name if is_module else Path(name).stem}
            recorded = _record(source, program, function, own_names, options)
    except TracekitError as error:
        parser.error(str(error))
    sys.argv = [program.__dict__["__file__"], *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd() if is_module else Path(name).resolve().parent)
    sys.modules["__main__"] = program
    _execute(recorded, program)


def help_text() -> str:
    """Return what `tracekit record --help` prints."""
    text = _parser().format_help().strip()
    return text[:1].upper() + text[1:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tracekit record",
        usage="tracekit record [OPTIONS] (SCRIPT | -m MODULE) [ARGUMENTS]",
        description="Run a training program as it is, and record the steps that its optimizer makes.",
        epilog="With several processes: torchrun --nproc-per-node 8 -m tracekit record train.py",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("-m", action="store_true", default=False, help="the program is a module, as of python -m")
    parser.add_argument("--path", metavar="FOLDER", help="folder of the runs (runs)")
    parser.add_argument("--step-function", metavar="MODULE:NAME", help="a function each call of which is a step")
    for name, meaning in _NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=meaning)
    parser.add_argument("--no-shapes", action="store_false", dest="shapes", help="record no shapes of tensors")
    for name, meaning in _SWITCHES.items():
        parser.add_argument(f"--{name}", action="store_true", help=meaning)
    parser.add_argument("program", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")
    return parser


def _script(name: str) -> tuple[str | bytes, ModuleType]:
    """Return the source of a script, and the module `__main__` that Python would make of it. Raises UsageError."""
    try:
        source = Path(name).read_bytes()
    except OSError as error:
        hint = "the options of record stand before the script"
        raise UsageError(f"{name} cannot be read: {error.strerror}", hint=hint) from None
    return source, _main_module(__file__=name, __loader__=SourceFileLoader("__main__", name))


def _module(name: str) -> tuple[str | bytes, ModuleType]:
    """Do the same for a module, or for the `__main__` of a package."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError):
        spec = None
    finally:
        del sys.path[0]
    source = getattr(spec.loader, "get_source", lambda _: None)(spec.name) if spec is not None else None
    if spec is None or source is None:
        raise UsageError(f"there is no module {name} to run", hint="as of python -m; scripts need no -m")
    return source, _main_module(
        __file__=spec.origin, __loader__=spec.loader, __spec__=spec, __package__=spec.parent, __cached__=spec.cached
    )


def _main_module(**names: object) -> ModuleType:
    module = ModuleType("__main__")
    vars(module).update({"__builtins__": builtins, "__cached__": None, **names})
    return module


def _execute(source: str | bytes | ast.Module, program: ModuleType) -> None:
    try:
        exec(compile(source, vars(program)["__file__"], "exec", dont_inherit=True), vars(program))  # noqa: S102
    except BaseException:
        sys.excepthook = functools.partial(_show, sys.excepthook)
        raise


def _show(
    hook: Callable[..., object], kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show an exception that nobody caught as without us: its traceback begins in the program."""
    while trace is not None and trace.tb_frame.f_code is not _execute.__code__:
        trace = trace.tb_next
    trace = trace and trace.tb_next
    hook(kind, error.with_traceback(trace), trace)


def _record(
    source: str | bytes, program: ModuleType, function: str | None, own_names: set[str], options: dict[str, Any]
) -> str | bytes | ast.Module:
    """Have the steps of a program recorded; return what to run as its source. Raises UsageError."""
    quiet = options.get("quiet", False)
    if function is None:
        schedule = Schedule(**{name: options[name] for name in ("skip", "warmup", "steps") if name in options})
        schedule = schedule_from_environment(schedule, os.environ, lambda _: None)
        if not schedule.skip + schedule.warmup:
            raise UsageError("the first step is known at its end only", hint="give --skip or --warmup 1 or more")
        steps = OptimizerSteps(options)
        _when_imported(_OPTIMIZERS, steps.watch)
        reason = (
            "no optimizer of torch stepped in this process; name the function of a step: --step-function MODULE:NAME"
        )
        _say_at_exit(lambda: not probes_created(), reason, quiet)
        return source
    home, _, name = function.partition(":")
    if not home or not name:
        raise UsageError(f"--step-function {function} names no function", hint="give it as MODULE:NAME")
    recorder = probe(**options)
    _say_at_exit(lambda: not recorder.calls, f"{function} was not called", quiet)
    if home not in own_names:
        _when_imported(home, lambda module: _decorate(module, name, recorder))
        return source
    vars(program)[_DECORATOR] = recorder
    return _decorated(source, vars(program)["__file__"], name)


class OptimizerSteps:
    """Makes a probe, and tells it where the steps of a program end: where its first optimizer has stepped.

    What is before the first of these is no step of the probe: it makes the model.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._probe: Probe | None = None
        self._optimizer: Callable[[], object] = lambda: None
        self._hooks: list[Any] = []

    def watch(self, module: Any) -> None:
        """Hook all optimizers. `module` is torch.optim.optimizer, as it has been imported."""
        hide_from_compiler()
        self._hooks = [
            module.register_optimizer_step_pre_hook(self._before),
            module.register_optimizer_step_post_hook(self._after),
        ]

    def _before(self, optimizer: Any, *_: object) -> None:
        if self._probe is None:
            if probes_created():
                self._remove()
                return
            self._probe = probe(**self._options)
            self._probe.__enter__()
        if self._optimizer() is None:  # none has stepped, or the program has dropped it
            self._optimizer = weakref.ref(optimizer)

    def _after(self, optimizer: Any, *_: object) -> None:
        if self._probe is None or self._optimizer() is not optimizer:
            return
        if probes_created() > 1:  # one of the program's own has come
            self._probe.finish()
            self._remove()
        else:
            self._probe.step()

    def _remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _when_imported(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action` with a module as soon as it has been imported."""
    if name in sys.modules:
        action(sys.modules[name])
    else:
        sys.meta_path.insert(0, _ImportWatch(name, action))


class _ImportWatch(MetaPathFinder):
    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class has the original
            load(module)
            try:
                self._action(module)
            except Exception as error:
                warn(f"nothing is recorded: {error_line(error)}")

        loader.exec_module = exec_module
        return spec


def _decorate(module: ModuleType, name: str, recorder: Probe) -> None:
    """Replace a function of a module, or a method `Class.method`, by a recorded one. Raises AttributeError."""
    *owners, function = name.split(".")
    owner: Any = functools.reduce(getattr, owners, module)
    getattr(owner, function)
    setattr(owner, function, recorder(vars(owner).get(function, getattr(owner, function))))


def _decorated(source: str | bytes, file: str, name: str) -> str | bytes | ast.Module:
    """Return the program's own source with a decorator on that function of it. Raises UsageError."""
    try:
        tree = ast.parse(source, file)
    except SyntaxError:
        return source  # Python says so when it runs it
    node: Any = tree
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        node = next((each for each in reversed(node.body) if isinstance(each, kinds) and each.name == part), None)
        if node is None:
            raise UsageError(f"{file} defines no {name}", hint="give --step-function MODULE:NAME of a function")
    node.decorator_list.append(ast.copy_location(ast.Name(_DECORATOR, ast.Load()), node))
    return tree


def _say_at_exit(nothing_was_recorded: Callable[[], bool], reason: str, quiet: bool) -> None:
    """Say at the end of this process, on rank 0, why nothing was recorded, if that is so."""
    process = os.getpid()

    def say() -> None:
        if nothing_was_recorded() and os.getpid() == process and not identify().rank:
            with contextlib.suppress(Exception):
                sys.stderr.write(f"tracekit: nothing was recorded: {reason}\n")

    if not quiet:
        atexit.register(say)
