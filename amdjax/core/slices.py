"""`ds`: windows of known size whose start may be traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdjax.core.pytree_registry import register_pytree_node


@dataclass
class Slice:
    """A window of an axis: where it begins, how many elements it has, and how far apart.

    Args:
      start: an integer, which may be traced.
      size: a known integer.
      stride: a known integer, not negative.
    """

    start: Any
    size: Any
    stride: int = 1

    def __post_init__(self) -> None:
        if self.stride < 0:
            raise ValueError(f"`stride` must be >= 0, got {self.stride}.")

    @property
    def is_dynamic_start(self) -> bool:
        """Whether the start is an array."""
        return not isinstance(self.start, int)

    @property
    def is_dynamic_size(self) -> bool:
        """Whether the size is an array, with which nothing can be indexed."""
        return not isinstance(self.size, int)


def _flatten(s: Slice) -> tuple[Any, Any]:
    known = (None if s.is_dynamic_start else s.start, None if s.is_dynamic_size else s.size)
    given = tuple(None if k is not None else v for k, v in zip(known, (s.start, s.size)))
    return given, (*known, s.stride)


def _unflatten(known: Any, given: Any) -> Slice:
    *parts, stride = known
    start, size = (g if k is None else k for k, g in zip(parts, given))
    return Slice(start, size, stride)


register_pytree_node(Slice, _flatten, _unflatten)


def ds(start: Any, size: Any = None, stride: int | None = None) -> slice | Slice:
    """A window as an index of arrays and references; unlike a slice's, its start may be traced.

    Args:
      start: where it begins, an integer, which may be traced; None for the whole axis. Without
        `size`, it is the size, and the window begins at 0.
      size: how many elements it has, a known integer.
      stride: how far apart they are, a known integer; 1 if omitted.

    Returns:
      Something to index with.

    Raises:
      ValueError: `stride` is traced or negative.

        >>> amdjax.jit(lambda x, i: x[amdjax.ds(i, 2)])(jnp.arange(10), 4)
        Array([4, 5], dtype=int32)
    """
    if start is None:
        return slice(None)
    if size is None:
        start, size = 0, start
    if not isinstance(stride, (int, type(None))):
        raise ValueError(f"Non-static stride in `dslice`: must be an int, got {stride!r}")
    return Slice(start, size, 1 if stride is None else stride)
