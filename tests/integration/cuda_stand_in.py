"""Runs a probe on two or more processes as if each had a GPU, and writes what it did with it.

    cuda_stand_in.py FOLDER PROBE [ARGUMENT...]

The GPU is a stand-in. Tensors that go to it stay on the CPU, and answer `is_cuda` with True, as does what is computed
from them. Its clock advances by the cycles that `torch.cuda._sleep` is given. NCCL is Gloo. Nobody really sleeps.
FOLDER/rank-<n>.json then has the milliseconds that the device and the host slept, and what was never moved.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import device_mesh
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

CYCLES_PER_MS = 1_980_000  # as many as an H100's
CPU = torch.device("cpu")


def is_gpu(value: Any) -> bool:
    return isinstance(value, torch.device) and value.type == "cuda"


class StandIn(TorchFunctionMode):
    """A GPU whose tensors are on the CPU. `slept_ms` and `late_ms` are what the device and the host slept."""

    def __init__(self, probes: Path) -> None:
        super().__init__()
        self.probes = probes
        self.cycles = 0
        self.slept_ms: list[float] = []
        self.late_ms: list[float] = []
        self.left_on_cpu: set[str] = set()
        self._memory: dict[int, Any] = {}  # kept alive, so that no tensor of the CPU gets the same address
        self._modules: set[nn.Module] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == Tensor.is_cuda.__get__:
            return self.has(args[0])
        kwargs = kwargs or {}
        moved = any(is_gpu(value) for value in (*args, *kwargs.values()))
        args = [CPU if is_gpu(value) else value for value in args]
        kwargs = {name: CPU if is_gpu(value) else value for name, value in kwargs.items()}
        result = func(*args, **kwargs)
        if moved or any(isinstance(value, Tensor) and self.has(value) for value in tree_iter((args, kwargs))):
            for value in tree_iter(result):
                if isinstance(value, Tensor):
                    self._take(value)
        return result

    def has(self, tensor: Tensor) -> bool:
        return self._storage(tensor).data_ptr() in self._memory

    def _take(self, tensor: Tensor) -> None:
        storage = self._storage(tensor)
        self._memory[storage.data_ptr()] = storage

    def _storage(self, tensor: Any) -> Any:
        for part in ("_local_tensor", "elem"):  # of a DTensor, of a tensor that a collective still fills
            tensor = getattr(tensor, part, tensor)
        return tensor.untyped_storage()

    def sleep(self, cycles: int) -> None:
        self.cycles += cycles
        self.slept_ms.append(cycles / CYCLES_PER_MS)

    def sleep_on_host(self, seconds: float) -> None:
        if Path(sys._getframe(1).f_code.co_filename).parent == self.probes:
            self.late_ms.append(1000 * seconds)

    def move_module(self, module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        MODULE_TO(module, *args, **kwargs)
        if any(is_gpu(value) for value in (*args, *kwargs.values())):
            self._modules.update(module.modules())
            for tensor in (*module.parameters(), *module.buffers()):
                self._take(tensor)
        return module

    def check_forward(self, module: nn.Module, inputs: Any) -> None:
        if next(module.parameters(recurse=False), None) is None:
            return
        if module not in self._modules:
            self.left_on_cpu.add(f"{type(module).__name__}, a module")
        if any(isinstance(x, Tensor) and not self.has(x) for x in inputs):
            self.left_on_cpu.add(f"an input of {type(module).__name__}")


class Event:
    """`torch.cuda.Event` of the stand-in."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.cycles: int | None = None

    def record(self) -> None:
        self.cycles = stand_in.cycles

    def synchronize(self) -> None:
        assert self.cycles is not None

    def elapsed_time(self, end: Event) -> float:
        assert self.cycles is not None
        assert end.cycles is not None
        return (end.cycles - self.cycles) / CYCLES_PER_MS


def run_backward(*args: Any, **kwargs: Any) -> Any:
    """A mode is off within a function that it handles; here Python is called again, and asks where tensors are."""
    with stand_in:
        return RUN_BACKWARD(*args, **kwargs)


def choose_device(options: Any) -> torch.device:
    """Choose as on a host with a GPU for each process; elsewhere torch must not believe that there is one."""
    gpus = int(os.environ["LOCAL_WORLD_SIZE"])
    with (
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.device_count", return_value=gpus),
        mock.patch("torch.cuda.get_device_name", return_value="stand-in"),
        mock.patch("torch.cuda.set_device"),
    ):
        device = CHOOSE_DEVICE(options)
    assert device == torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    stand_in.slept_ms.clear()  # of the calibration
    return device


def init_process_group(backend: str) -> None:
    assert backend == "nccl"
    INIT_PROCESS_GROUP("gloo")


def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
    """Make the mesh of CPUs. FSDP asks for one by itself, of the devices that torch really sees."""
    return INIT_DEVICE_MESH("cpu", *args, **kwargs)


folder, probe = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
sys.argv = sys.argv[2:]
sys.path.insert(0, str(probe.parent))
os.environ["DS_ACCELERATOR"] = "cpu"
job = importlib.import_module("job")

MODULE_TO, CHOOSE_DEVICE = nn.Module.to, job.choose_device
RUN_BACKWARD = torch.autograd._engine_run_backward
INIT_PROCESS_GROUP, INIT_DEVICE_MESH = dist.init_process_group, device_mesh.init_device_mesh

stand_in = StandIn(probe.parent)
job.choose_device = choose_device
torch.autograd._engine_run_backward = run_backward
dist.init_process_group, device_mesh.init_device_mesh = init_process_group, init_device_mesh
torch.cuda._sleep, torch.cuda.Event = stand_in.sleep, Event
time.sleep = stand_in.sleep_on_host
nn.Module.to = lambda module, *args, **kwargs: stand_in.move_module(module, *args, **kwargs)
nn.modules.module.register_module_forward_pre_hook(stand_in.check_forward)
with stand_in:
    runpy.run_path(str(probe), run_name="__main__")
results = {
    "device_ms": stand_in.slept_ms,
    "host_ms": stand_in.late_ms,
    "left_on_cpu": sorted(stand_in.left_on_cpu),
}
(folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(results))
