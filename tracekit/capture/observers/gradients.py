"""Tells whose gradient a tensor is, by its address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

_MAX_LOOK_UPS = 16  # of one size that found nothing; some activations are as large as a parameter
_MIN_FLAT_ELEMENTS = 64  # elements: smaller sums agree by chance

__all__ = ["GradientAddresses"]


class GradientAddresses:
    """Answers whose gradient a tensor is. Where gradients lie changes from step to step: a tensor at a new address has
    all parameters of its size looked up once, and then the others of them are known, too."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        self._parameters = list(parameters)
        self._addresses = {parameter.data_ptr() for parameter in self._parameters}
        self._same_size: dict[int, list[int]] = {}  # places of parameters by their number of elements
        for index, parameter in enumerate(self._parameters):
            self._same_size.setdefault(parameter.numel(), []).append(index)
        self._index_at: dict[int, int] = {}  # by the address of the gradient
        self._next_by_shape: Counter[int] = Counter()
        self._failed_look_ups: Counter[int] = Counter()
        self.count = len(self._parameters)
        self._elements = sum(parameter.numel() for parameter in self._parameters)

    def parameter_index(self, tensor: Any, in_backward: bool) -> int | None:
        """Which parameter's gradient `tensor` is. A backward pass may not have put it there yet: then the shape tells,
        and parameters of one shape take turns.
        """
        elements, address = tensor.numel(), tensor.data_ptr()
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

    def is_parameter(self, tensor: Any) -> bool:
        return tensor.data_ptr() in self._addresses

    def are_all_gradients(self, elements: int) -> bool:
        """Whether so many elements are all gradients, once or several times: flat buffers have them without names."""
        return elements > 0 and self._elements >= _MIN_FLAT_ELEMENTS and elements % self._elements == 0

    def release(self) -> None:
        """Let go of the parameters; what has been counted stays."""
        self._parameters, self._addresses, self._same_size, self._index_at = [], set(), {}, {}

    def _is_at(self, index: int | None, address: int) -> bool:
        gradient = None if index is None else self._parameters[index].grad
        return gradient is not None and gradient.data_ptr() == address

    def _look_up(self, indices: Iterable[int]) -> None:
        for index in indices:
            gradient = self._parameters[index].grad
            if gradient is not None:
                self._index_at[gradient.data_ptr()] = index
