"""A Python that has imported torch, and forks a process for each job that it is told to run: the import comes once.

Started as `python forked.py`. Comes in: a line of JSON for each job, `Request`. Goes out: a line with its process id,
then one with its exit code.

What it forks goes on as the interpreter does that a command line starts: its program is `__main__`, and what it leaves
behind is torn down at its end. That walks through all of torch and takes longer than most jobs, so that a job that is
not about its end may leave without: once its program has returned, its threads have ended and what it registered for
its exit has run. The launcher of torch.distributed, too, is given processes that were forked before it starts: forking
from it, which has threads, would not be safe.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any, TypedDict

# `torch._dynamo` is what every optimizer imports.
IMPORTED_ONCE = ("torch", "torch._dynamo", "torch.distributed.run")


class Request(TypedDict):
    """A command line without its Python, how many ranks it starts, and the files for what it prints.

    torn_down: whether its processes end as others do, or leave what they hold to the system.
    """

    arguments: list[str]
    ranks: int
    torn_down: bool
    stdout: str
    stderr: str


class Rank(subprocess.Popen[str]):
    """A process that the launcher starts: one of those that wait."""

    waiting: list[tuple[int, int]] = []  # noqa: RUF012 (the process ids, and where each listens)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *rest: Any) -> None:
        _pass_fds, _cwd, environment, *_ = rest
        self.pid, wake = self.waiting.pop(0)
        self._child_created = True
        with os.fdopen(wake, "w") as stream:
            json.dump({"arguments": list(args)[1:], "environment": environment}, stream)


def serve() -> tuple[list[str], bool]:
    """Run jobs, one at a time; returns in each process that was forked, with the command line that it is to be, and
    whether it is to be torn down.
    """
    for line in sys.stdin:
        request: Request = json.loads(line)
        job = os.fork()
        if job == 0:
            return begin(request), request["torn_down"]
        print(job, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]), flush=True)
    sys.exit()


def begin(request: Request) -> list[str]:
    os.setsid()
    for place, name, flags in ((0, os.devnull, os.O_RDONLY), (1, request["stdout"], 1), (2, request["stderr"], 1)):
        file = os.open(name, flags)
        os.dup2(file, place)
        os.close(file)
    for _ in range(request["ranks"]):
        if (arguments := wait_to_be_a_rank()) is not None:
            return arguments
    if request["ranks"]:
        handler = sys.modules["torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"]
        handler.Popen = Rank  # type: ignore[attr-defined]
    return request["arguments"]


def wait_to_be_a_rank() -> list[str] | None:
    """None in the launcher; in the new process its command line, as soon as the launcher gives it one."""
    listen, wake = os.pipe()
    rank = os.fork()
    if rank:
        os.close(listen)
        Rank.waiting.append((rank, wake))
        return None
    for other in (wake, *(other for _, other in Rank.waiting)):
        os.close(other)
    with os.fdopen(listen) as stream:
        told = stream.read()
    if not told:
        os._exit(0)  # the launcher ended without
    order = json.loads(told)
    os.setsid()
    os.environ.clear()
    os.environ.update(order["environment"])
    arguments: list[str] = order["arguments"]
    return arguments


def become(arguments: list[str]) -> None:
    """Go on as `python *arguments` does after its start."""
    if arguments[0] == "-u":
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        arguments = arguments[1:]
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], str(Path.cwd())
        sys.modules.pop(arguments[1], None)  # runpy warns of what was imported before
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        return
    sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).parent)
    main = types.ModuleType("__main__")
    main.__file__ = arguments[0]
    sys.modules["__main__"] = main
    exec(compile(Path(arguments[0]).read_bytes(), arguments[0], "exec"), main.__dict__)


def leave() -> None:
    """End the process as the interpreter does, up to where it frees what there is."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    for name in IMPORTED_ONCE:
        __import__(name)
    gc.freeze()  # else each process walks through all of it as it ends
    command_line, torn_down = serve()
    become(command_line)
    if not torn_down:
        leave()
