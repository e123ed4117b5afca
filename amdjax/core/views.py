"""Parts of arrays, said by strides: operands of kernels that read them where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["View", "viewed"]


class View(NamedTuple):
    """A part of an array: elements `offset + Σ index[d] * strides[d]` of it, as it lies."""

    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    @staticmethod
    def of(shape: Sequence[int]) -> View:
        """All of an array."""
        strides = [1]
        for n in reversed(shape[1:]):
            strides.insert(0, strides[0] * n)
        return View(tuple(shape), 0, tuple(strides[: len(shape)]))


def viewed(avals: Sequence[Any], views: Sequence[View | None] = ()) -> list[Any]:
    """The types of operands, of the first ones those of the views by which they are read."""
    shown = [y if v is None else y.update(shape=v.shape) for y, v in zip(avals, views)]
    return [*shown, *avals[len(shown) :]]
