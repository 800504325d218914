"""Finds the parameter whose gradient a tensor is, by its address."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

_MAX_LOOK_UPS = 16  # without success for one size; some activations are as large as a parameter
_MIN_FLAT_ELEMENTS = 64  # of all gradients; multiples of a smaller number occur by chance

__all__ = ["GradientAddresses"]


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
        self._elements = sum(parameter.numel() for parameter in self._parameters)

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
