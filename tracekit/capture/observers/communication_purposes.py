"""Finds out what the collectives of a program's own Python code are for, by the tensors that they get.

Every call of `torch.distributed` in Python ends in a method of `ProcessGroup`, which is patched. DDP's reducer and
DTensor do not call these methods. Calls by torch's wrappers are left to the wrappers' observers.

* Gradients are recognised by their address, which tells their parameter. A group over which gradients of most elements
  are reduced is data parallel. Ranks of tensor parallelism reduce those of the few that they share, such as norms.
* Such ranks may share parameters as well. If each shares its part after the reductions, it is ZeRO, stage 1; if parts
  are gathered before the gradients are there, FSDP; if parameters are averaged instead of gradients, local SGD.
* A tensor is an activation if it is communicated inside the forward of a module or of an autograd function, has an
  autograd graph, or is communicated in a backward pass and is no gradient. The group is tensor parallel.
* So is one of inference without modules: a group over which matrices are communicated several times a step, and nothing
  else, while nothing joins the autograd graph. (An evaluation gathers its results once.)
* Activations sent with split sizes are tokens for experts. The group is expert parallel.
* Scalars, such as a loss for a log, are ignored. The parallelism of a group may remain unknown.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import Patch, PatchSet, patch_of
from tracekit.capture.hooks.span import leaf_inputs, runs_backward
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.parameters import LiveParameters
from tracekit.model.metadata import CommunicationPurpose, CommunicationUse

# The methods under the names of all versions, with the index of the argument that this rank contributes.
_REDUCTIONS = dict.fromkeys(("allreduce", "allreduce_coalesced", "reduce"), 0)
_SCATTERS = dict.fromkeys(
    (
        *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
        *("reduce_scatter_single", "reduce_scatter_single_coalesced"),
    ),
    1,
)
_GATHERS = dict.fromkeys(
    (
        *("allgather", "allgather_coalesced", "_allgather_base", "allgather_into_tensor_coalesced"),
        *("all_gather_single", "all_gather_single_coalesced"),
    ),
    1,
)
_EXCHANGES = dict.fromkeys(("alltoall", "alltoall_base", "all_to_all_single"), 1)
_WRAPPERS = (
    *("torch.distributed.fsdp", "torch.distributed._composable", "torch.distributed.tensor", "torch.distributed.optim"),
    *("torch.distributed.algorithms", "torch.distributed.pipelining", "torch.distributed.checkpoint"),
    *("torch.nn.parallel", "torch.nn.modules._functions", "deepspeed"),  # `_functions`: synchronized batch norm
)
_AVERAGERS = "torch.distributed.algorithms.model_averaging"  # of parameters, in one buffer
_MAX_LOOK_UPS = 16  # without success for one size; some activations are as large as a parameter
_MIN_FLAT_ELEMENTS = 64  # of all gradients; multiples of a smaller number occur by chance
_LAYERS = 2  # the fewest times a step that activations are communicated
_STRATEGIES_OF_WRAPPERS = frozenset({"ddp", "fsdp1", "fsdp2", "hsdp", "zero1", "zero2", "zero3"})

# By module: a cache, as each call looks up all its frames.
_Caller = Literal["wrapper", "averager", "program", "between"]
_caller_kinds: dict[str, _Caller] = {}


@dataclass
class _Use:
    """What has been communicated over one group since the window opened.

    Attributes:
        group: the process group.
        by_hand: number of calls, by purpose and by whether a backward pass was running.
        gradients: indices of the parameters whose gradients were reduced.
        flat_calls: reductions of tensors of unknown purpose, perhaps buffers of all gradients.
        flat_elements: elements of those tensors.
        scatters: whether activations were reduced and scattered.
        gathers_first: whether parameters were gathered before any gradient was reduced.
        gathered: elements of the whole of each parameter whose parts were gathered.
        roots: the ranks that sent parameters to all others.
        without_graph: calls with matrices of unknown purpose, where no parameter could get a gradient.
    """

    group: Any
    by_hand: Counter[tuple[CommunicationPurpose, bool]] = field(default_factory=Counter)
    gradients: set[int] = field(default_factory=set)
    flat_calls: int = 0
    flat_elements: int = 0
    scatters: bool = False
    gathers_first: bool = False
    gathered: set[int] = field(default_factory=set)
    roots: set[int] = field(default_factory=set)
    without_graph: int = 0


class PurposeObserver:
    """Attached after the wrappers' observers, it leaves the groups and strategies that they have set."""

    def __init__(self) -> None:
        self._patches = PatchSet()
        self._uses: dict[int, _Use] = {}
        self._gradients = GradientAddresses(())

    def attach(self, objects: LiveObjects) -> None:
        process_group = getattr(sys.modules.get("torch.distributed"), "ProcessGroup", None)
        if process_group is None:
            return
        self._gradients = GradientAddresses(_trainable_parameters(objects))
        observed_methods = (
            (_REDUCTIONS, self._note_reduction),
            (_SCATTERS, self._note_scatter),
            ({"broadcast": 0}, self._note_broadcast),
            (_GATHERS, self._note_gather),
            (_EXCHANGES, self._note_exchange),
        )
        for methods, note in observed_methods:
            for name, argument in methods.items():
                if hasattr(process_group, name):
                    around = functools.partial(_observe_call, note, argument)
                    self._patches.apply([Patch(process_group, name, around)])
        if self._gradients.count:
            self._patches.apply(patch_of("torch.autograd", None, "grad", self._note_gradients))

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()
        self._gradients.release()

    def contribute(self, draft: MetadataDraft) -> None:
        for use in self._uses.values():
            self._contribute(use, draft)
        self._uses = {}

    def _note_gradients(self, grad: Callable[..., Any], outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = grad(outputs, inputs, *args, **kwargs)
        self._gradients.add_returned(leaf_inputs(inputs), gradients)
        return gradients

    def _note_reduction(self, group: Any, tensors: list[Any], _: tuple[Any, ...]) -> None:
        use = self._use_of(group)
        if _caller() == "averager":
            use.by_hand["parameters", False] += 1
            return
        in_backward = runs_backward()
        indices = [self._gradients.parameter_index(tensor, in_backward) for tensor in tensors]
        if None not in indices:
            use.gradients.update(index for index in indices if index is not None)
            use.by_hand["gradients", in_backward] += 1
        elif all(self._gradients.is_parameter(tensor) for tensor in tensors):
            use.by_hand["parameters", in_backward] += 1
        elif in_backward or _is_activation(tensors):
            use.by_hand["activations", in_backward] += 1
        else:
            use.flat_calls += 1
            use.flat_elements += sum(tensor.numel() for tensor in tensors)
            use.without_graph += self._has_no_graph(tensors)

    def _note_scatter(self, group: Any, tensors: list[Any], arguments: tuple[Any, ...]) -> None:
        use, in_backward = self._use_of(group), runs_backward()
        if sum(tensor.numel() for tensor in tensors) in use.gathered:
            use.by_hand["gradients", in_backward] += 1
        else:
            before = use.by_hand["activations", in_backward]
            self._note_reduction(group, tensors, arguments)
            use.scatters |= use.by_hand["activations", in_backward] > before

    def _note_gather(self, group: Any, tensors: list[Any], _: tuple[Any, ...]) -> None:
        use, in_backward = self._use_of(group), runs_backward()
        whole = sum(tensor.numel() for tensor in tensors) * group.size()
        of_all = use.flat_calls and self._gradients.are_all_gradients(whole)
        if of_all or all(self._gradients.is_parameter(tensor) for tensor in tensors):
            use.gathers_first |= not use.flat_calls and all(purpose != "gradients" for purpose, _ in use.by_hand)
            use.gathered.add(whole)
            use.by_hand["parameters", in_backward] += 1
        elif in_backward or _is_activation(tensors):
            use.by_hand["activations", in_backward] += 1
        else:
            use.without_graph += self._has_no_graph(tensors)

    def _note_broadcast(self, group: Any, tensors: list[Any], arguments: tuple[Any, ...]) -> None:
        root = getattr(arguments[1], "rootRank", None) if len(arguments) > 1 else None
        if root is not None and all(self._gradients.is_parameter(tensor) for tensor in tensors):
            use = self._use_of(group)
            use.roots.add(int(root))
            use.by_hand["parameters", runs_backward()] += 1

    def _note_exchange(self, group: Any, tensors: list[Any], arguments: tuple[Any, ...]) -> None:
        in_backward = runs_backward()
        if _is_split(arguments) and (in_backward or _is_activation(tensors)):
            self._use_of(group).by_hand["tokens", in_backward] += 1

    def _has_no_graph(self, tensors: list[Any]) -> bool:
        """Return whether these are matrices that could have no graph if they were activations."""
        graphless = not (self._gradients.count and sys.modules["torch"].is_grad_enabled())
        return graphless and all(tensor.dim() > 1 for tensor in tensors)

    def _use_of(self, group: Any) -> _Use:
        use = self._uses.get(id(group))
        if use is None:
            use = self._uses[id(group)] = _Use(group)
        return use

    def _contribute(self, use: _Use, draft: MetadataDraft) -> None:
        number = draft.groups.id_of(use.group)
        if number is None:
            return
        if self._gradients.are_all_gradients(use.flat_elements):
            use.by_hand["gradients", False] += use.flat_calls
        if not use.by_hand and use.without_graph >= _LAYERS * max(draft.steps, 1):
            use.by_hand["activations", False] += use.without_graph
        if parallelism := self._parallelism(use):
            draft.groups.set_parallelism(use.group, parallelism)
        # What a wrapper's observer or the mesh says about the group takes precedence.
        current = draft.groups.groups[number].parallelism
        by_wrapper = current == "dp" and bool(_STRATEGIES_OF_WRAPPERS & set(draft.strategies))
        if parallelism is None or current != parallelism or by_wrapper:
            return
        if parallelism == "dp":
            draft.strategies.append(_data_parallelism(use))
        if parallelism == "tp" and use.scatters:  # tensor parallelism scatters only what it splits by sequence
            draft.strategies.append("sp")
        for purpose in {purpose: None for purpose, _ in use.by_hand}:
            draft.uses.append(
                CommunicationUse(
                    group=number,
                    purpose=purpose,
                    calls=use.by_hand[purpose, False] + use.by_hand[purpose, True],
                    in_backward=use.by_hand[purpose, True],
                    parameters=len(use.gradients) or None if purpose == "gradients" else None,
                )
            )

    def _parallelism(self, use: _Use) -> str | None:
        """Return the parallelism that the calls suggest, or None."""
        called = {purpose for purpose, _ in use.by_hand}
        are_most = self._gradients.are_most(use.gradients) or self._gradients.are_all_gradients(use.flat_elements)
        if "gradients" in called and (are_most or called <= {"gradients", "parameters"}):
            return "dp"
        if "tokens" in called:
            return "ep"
        if "activations" in called:
            return "tp"
        return "dp" if "parameters" in called and not use.roots else None


def _data_parallelism(use: _Use) -> str:
    """Return the strategy of ranks that share gradients or parameters of the whole model."""
    called = {purpose for purpose, _ in use.by_hand}
    if "gradients" not in called:
        return "manual_fsdp" if use.gathered else "local_sgd"
    if use.gathered:
        return "manual_fsdp" if use.gathers_first else "zero1"
    return "zero1" if len(use.roots) > 1 else "manual_dp"


def _observe_call(
    note: Callable[[Any, list[Any], tuple[Any, ...]], None],
    argument: int,
    call: Callable[..., Any],
    group: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if len(args) > argument:
        tensors = [tensor for tensor in _tensors(args[argument]) if tensor.numel() > 1 and tensor.is_floating_point()]
        if tensors and _caller() != "wrapper":
            note(group, tensors, args)
    return call(group, *args, **kwargs)


def _trainable_parameters(objects: LiveObjects) -> list[Any]:
    """Return the parameters that get gradients, each once; not those that wrappers shard."""
    torch = sys.modules["torch"]
    plain = (torch.nn.Parameter, torch.Tensor)
    return [p for p in LiveParameters.of(objects).parameters if type(p) in plain and p.requires_grad]


def _tensors(tensors: Any) -> Iterator[Any]:
    if isinstance(tensors, list | tuple):
        for item in tensors:
            yield from _tensors(item)
    elif hasattr(tensors, "numel"):
        yield tensors


def _is_activation(tensors: list[Any]) -> bool:
    """Return whether tensors are activations: part of an autograd graph, or communicated inside the forward of a module
    or of an autograd function.
    """
    if any(tensor.grad_fn is not None for tensor in tensors):
        return True
    torch = sys.modules["torch"]
    call, apply = torch.nn.Module._call_impl.__code__, getattr(torch.autograd.Function.apply, "__func__", None)
    if apply is not None:
        return any(frame.f_code in (call, apply.__code__) for frame in _callers())
    return any(frame.f_code is call or _is_forward_of_function(frame) for frame in _callers())


def _is_forward_of_function(frame: FrameType) -> bool:
    """Return whether an autograd function goes forward: torch 2.15 calls it from C, with its context."""
    code = frame.f_code
    if code.co_name != "forward" or not code.co_argcount:
        return False
    context: type = sys.modules["torch"].autograd.function.FunctionCtx
    return isinstance(frame.f_locals.get(code.co_varnames[0]), context)


def _caller() -> _Caller:
    """Return what issues the collective: a wrapper of torch, if no code of the program is in between."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        kind = _caller_kinds.get(module)
        if kind is None:
            kind = _caller_kinds[module] = _caller_kind(module)
        if kind != "between":
            return kind
        frame = frame.f_back
    return "program"


def _caller_kind(module: str) -> _Caller:
    if module.startswith(_AVERAGERS):
        return "averager"
    if module.startswith(_WRAPPERS):
        return "wrapper"
    return "between" if module.startswith(("torch.", "tracekit.")) else "program"


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_split(arguments: tuple[Any, ...]) -> bool:
    """Return whether an all-to-all has split sizes, or lists of tensors of different sizes."""
    splits = [argument for argument in arguments[2:4] if isinstance(argument, list)]
    if any(splits):
        return True
    lists = [argument for argument in arguments[:2] if isinstance(argument, list)]
    return any(len({tensor.numel() for tensor in tensors}) > 1 for tensors in lists)


class GradientAddresses:
    """Finds the parameter of a gradient.

    Addresses of gradients change from step to step. For a tensor at a new address, the gradients of all parameters of
    its size are looked up, which makes the others of that size known, too.
    """

    def __init__(self, parameters: Iterable[Any]) -> None:
        self._parameters = list(parameters)
        self._addresses = {parameter.data_ptr() for parameter in self._parameters}
        self._same_size: dict[int, list[int]] = {}  # indices of parameters by their number of elements
        for index, parameter in enumerate(self._parameters):
            self._same_size.setdefault(parameter.numel(), []).append(index)
        self._index_at: dict[int, int] = {}  # by the address of the gradient
        self._index_of = {id(parameter): index for index, parameter in enumerate(self._parameters)}
        self._returned: dict[int, tuple[weakref.ref[Any], int]] = {}  # by address, gradients that no parameter holds
        self._next_by_shape: Counter[int] = Counter()
        self._failed_look_ups: Counter[int] = Counter()
        self.count = len(self._parameters)
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self._elements = sum(self._sizes)

    def parameter_index(self, tensor: Any, in_backward: bool) -> int | None:
        """Return the index of the parameter whose gradient `tensor` is, or None.

        In a backward pass the gradient may not be assigned yet. Then the shape decides, and the parameters of one shape
        are returned one after the other.
        """
        elements, address = tensor.numel(), tensor.data_ptr()
        returned, index_of_returned = self._returned.get(address, (None, None))
        if returned is not None and returned() is not None:
            return index_of_returned
        same_size = self._same_size.get(elements)
        if same_size is None:
            return None
        if not self._is_at(self._index_at.get(address), address) and self._failed_look_ups[elements] < _MAX_LOOK_UPS:
            self._look_up(same_size)
        index = self._index_at.get(address)
        if self._is_at(index, address):
            self._failed_look_ups[elements] = 0
            return index
        self._failed_look_ups[elements] += 1
        index = same_size[self._next_by_shape[elements] % len(same_size)]
        if in_backward and self._parameters[index].shape == tensor.shape:
            self._next_by_shape[elements] += 1
            return index
        return None

    def add_returned(self, inputs: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Take in what `torch.autograd.grad` returned. It counts while the program keeps it."""
        for parameter, gradient in zip(inputs, gradients, strict=False):
            index = self._index_of.get(id(parameter))
            if index is not None and gradient is not None:
                self._returned[gradient.data_ptr()] = weakref.ref(gradient), index

    def is_parameter(self, tensor: Any) -> bool:
        return tensor.data_ptr() in self._addresses

    def are_most(self, indices: Iterable[int]) -> bool:
        """Return whether the gradients of these parameters have at least half of all elements."""
        return bool(2 * sum(self._sizes[index] for index in indices) >= self._elements)

    def are_all_gradients(self, elements: int) -> bool:
        """Return whether so many elements can be all gradients, once or several times, as in flat buffers."""
        return elements > 0 and self._elements >= _MIN_FLAT_ELEMENTS and elements % self._elements == 0

    def release(self) -> None:
        """Drop the parameters; the counts stay."""
        self._parameters, self._addresses, self._same_size, self._index_at = [], set(), {}, {}
        self._index_of, self._returned = {}, {}

    def _is_at(self, index: int | None, address: int) -> bool:
        gradient = None if index is None else self._parameters[index].grad
        return gradient is not None and gradient.data_ptr() == address

    def _look_up(self, indices: Iterable[int]) -> None:
        for index in indices:
            gradient = self._parameters[index].grad
            if gradient is not None:
                self._index_at[gradient.data_ptr()] = index
