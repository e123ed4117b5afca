"""How layers say what PyTorch calls their parameters, and how it lays them out."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["TorchTensor"]


class TorchTensor(NamedTuple):
    """An entry of a PyTorch state dict and the arrays of a layer that it is.

    The tensor is taken apart by `split`, its axes are permuted, and the array is that in the shape
    it has in the layer; in the other direction all of it is undone.

    Args:
      name: of the entry, below the layer's own.
      where: the field of the layer, or a function that finds the array in it; or a tuple of arrays,
        which stand one after the other on the tensor's first axis. None for an entry that layers
        of ours have no use for.
      axes: the axes of the (split) tensor in the order of ours; None if they are the same.
      split: a shape to give the tensor first, or None.
      shape: the shape of the tensor, where `split` is given.

        >>> nn.TorchTensor("weight", "kernel", (1, 0)).array(np.ones((4, 3)), (3, 4)).shape
        (3, 4)
    """

    name: str
    where: str | Callable[[Any], Any] | None
    axes: tuple[int, ...] | None = None
    split: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None

    def find(self, layer: Any) -> Any:
        """The array, or the tuple of arrays, in a layer.

        Args:
          layer: the layer.

        Returns:
          What `where` finds.
        """
        where = operator.attrgetter(self.where) if isinstance(self.where, str) else self.where
        return where(layer) if where is not None else None

    def array(self, tensor: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Our array of a tensor.

        Args:
          tensor: as PyTorch has it.
          shape: of the array.

        Returns:
          The array.

        Raises:
          ValueError: the tensor has another shape than PyTorch's layer of this form.
        """
        if tensor.shape != self.expected(shape):
            raise ValueError(f"has shape {tensor.shape}, expected {self.expected(shape)}")
        parts = tensor if self.split is None else tensor.reshape(self.split)
        return (parts if self.axes is None else parts.transpose(self.axes)).reshape(shape)

    def tensor(self, array: np.ndarray) -> np.ndarray:
        """PyTorch's tensor of one of our arrays.

        Args:
          array: as the layer has it.

        Returns:
          The tensor.
        """
        if self.axes is None:
            return array if self.shape is None else array.reshape(self.shape)
        split = self.expected(array.shape) if self.split is None else self.split
        parts = array.reshape([split[a] for a in self.axes]).transpose(np.argsort(self.axes))
        return parts if self.shape is None else parts.reshape(self.shape)

    def expected(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the tensor of an array.

        Args:
          shape: of the array.

        Returns:
          The tensor's.
        """
        if self.shape is not None:
            return self.shape
        return shape if self.axes is None else tuple(shape[i] for i in np.argsort(self.axes))


SCALE_AND_BIAS = (TorchTensor("weight", "scale"), TorchTensor("bias", "bias"))
