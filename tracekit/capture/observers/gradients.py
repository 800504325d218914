"""Tells whose gradient a tensor is, by its address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

_MOST_LOOK_UPS = 16  # of one size that found nothing; some activations are as large as a parameter
_LEAST_FLAT = 64  # elements: smaller sums agree by chance

__all__ = ["GradientAddresses"]


class GradientAddresses:
    """Answers whose gradient a tensor is. Where gradients lie changes from step to step: a tensor at a new address has
    all parameters of its size looked up once, and then the others of them are known, too."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        self._parameters = list(parameters)
        self._addresses = {parameter.data_ptr() for parameter in self._parameters}
        self._alike: dict[int, list[int]] = {}  # places of parameters by their number of elements
        for place, parameter in enumerate(self._parameters):
            self._alike.setdefault(parameter.numel(), []).append(place)
        self._place_at: dict[int, int] = {}  # by the address of the gradient
        self._next: Counter[int] = Counter()
        self._in_vain: Counter[int] = Counter()
        self.count = len(self._parameters)
        self._elements = sum(parameter.numel() for parameter in self._parameters)

    def place_of(self, tensor: Any, in_backward: bool) -> int | None:
        """Which parameter's gradient `tensor` is. A backward pass may not have put it there yet: then the shape tells,
        and parameters of one shape take turns.
        """
        elements, address = tensor.numel(), tensor.data_ptr()
        alike = self._alike.get(elements)
        if alike is None:
            return None
        if not self._lies_at(self._place_at.get(address), address) and self._in_vain[elements] < _MOST_LOOK_UPS:
            self._look_up(alike)
        place = self._place_at.get(address)
        if self._lies_at(place, address):
            self._in_vain[elements] = 0
            return place
        self._in_vain[elements] += 1
        place = alike[self._next[elements] % len(alike)]
        if in_backward and self._parameters[place].shape == tensor.shape:
            self._next[elements] += 1
            return place
        return None

    def is_parameter(self, tensor: Any) -> bool:
        return tensor.data_ptr() in self._addresses

    def are_whole(self, elements: int) -> bool:
        """Whether so many elements are all gradients, once or several times: flat buffers have them without names."""
        return elements > 0 and self._elements >= _LEAST_FLAT and elements % self._elements == 0

    def forget(self) -> None:
        """Let go of the parameters; what has been counted stays."""
        self._parameters, self._addresses, self._alike, self._place_at = [], set(), {}, {}

    def _lies_at(self, place: int | None, address: int) -> bool:
        gradient = None if place is None else self._parameters[place].grad
        return gradient is not None and gradient.data_ptr() == address

    def _look_up(self, places: Iterable[int]) -> None:
        for place in places:
            gradient = self._parameters[place].grad
            if gradient is not None:
                self._place_at[gradient.data_ptr()] = place
