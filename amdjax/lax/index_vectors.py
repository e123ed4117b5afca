"""What gathers and scatters say of their index vectors: dimension numbers and modes."""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = [
    "GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers",
]  # fmt: skip


class GatherDimensionNumbers(NamedTuple):
    """Which dimension of which array plays which part in a `gather`.

    Args:
      offset_dims: dimensions of the result that run within a slice; sorted.
      collapsed_slice_dims: dimensions of the operand, of slice size 1, left out of the result.
      start_index_map: for each entry of an index vector, the operand dimension it positions.
      start_indices_batching_dims: the dimensions of the indices they run along with.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """Which dimension of which array plays which part in a `scatter`.

    Args:
      update_window_dims: dimensions of the updates that run within a slice; sorted.
      inserted_window_dims: dimensions of the operand, of slice size 1, that the updates lack.
      scatter_dims_to_operand_dims: for each entry of an index vector, the operand dimension it
        positions.
      scatter_indices_batching_dims: the dimensions of the indices they run along with.
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


class GatherScatterMode(enum.Enum):
    """What becomes of a slice that does not lie within the array.

    `CLIP` moves it inside. `FILL_OR_DROP` reads a fill value and drops an update.
    `PROMISE_IN_BOUNDS` is the caller's word that it does not happen. `ONE_HOT` reads zero, as the
    product with one-hot vectors would, and drops an update.
    """

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(mode: str | GatherScatterMode | None) -> GatherScatterMode:
        """The mode that a name means; `None` means fill or drop.

        Args:
          mode: a mode, `None`, or one of "clip", "fill", "drop", "promise_in_bounds", "one_hot".

        Returns:
          The mode.

        Raises:
          ValueError: for another name.

        Example:
          >>> lax.GatherScatterMode.from_any("drop").name
          'FILL_OR_DROP'
        """
        if isinstance(mode, GatherScatterMode):
            return mode
        if not (mode is None or isinstance(mode, str)) or mode not in _MODES:
            names = ", ".join(repr(name) for name in _MODES if name)
            raise ValueError(f"unknown gather/scatter mode {mode!r}; choose one of {names}.")
        return _MODES[mode]


_MODES = {
    None: GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


def with_tuples(numbers):
    """Dimension numbers as hashable data, whatever sequences the caller chose."""
    return type(numbers)(*(tuple(map(operator.index, dims)) for dims in numbers))


def shifted_dims(dims: Iterable[int]) -> tuple[int, ...]:
    """Dimension numbers after one new leading axis."""
    return tuple(d + 1 for d in dims)


def check_dims(op: str, name: str, dims, rank: int, ascending: bool = True) -> None:
    """Raise unless `dims` are distinct dimensions of an array of rank `rank`, in order."""
    if ascending and list(dims) != sorted(dims):
        raise TypeError(f"{name} in {op} op must be sorted, got {dims}.")
    if len(set(dims)) != len(dims):
        raise TypeError(f"{name} in {op} op must not repeat, got {dims}.")
    for position, d in enumerate(dims):
        if not 0 <= d < rank:
            if name == "offset_dims":
                raise TypeError(
                    f"Offset dimension {position} in {op} op is out of bounds; valid range is "
                    f"[0, {rank}), got {dims}."
                )
            what = "mapping" if name == "scatter_dims_to_operand_dims" else "set"
            raise TypeError(
                f"Invalid {name} {what} in {op} op; valid range is [0, {rank}), got {dims}."
            )


def check_index_vectors(op: str, name: str, indices, index_map) -> None:
    last = len(indices.shape) - 1
    if last < 0 or indices.shape[last] != len(index_map):
        size = indices.shape[last] if last >= 0 else "missing"
        raise TypeError(
            f"{op.capitalize()} op has {len(index_map)} elements in {name} and the bound of "
            f"dimension index_vector_dim={last} of indices is {size}. These two numbers must be "
            f"equal."
        )


def check_batching_dims(
    op, operand, indices, operand_dims, indices_dims, indices_name, taken
) -> None:
    check_dims(op, "operand_batching_dims", operand_dims, len(operand.shape))
    check_dims(op, indices_name, indices_dims, len(indices.shape), ascending=False)
    for name, dims in taken:
        if set(dims) & set(operand_dims):
            raise TypeError(
                f"{name} and operand_batching_dims in {op} op must be disjoint, "
                f"got {dims} and {operand_dims}."
            )
    if len(indices.shape) - 1 in indices_dims:
        raise TypeError(
            f"{op.capitalize()} op cannot have the index vector dimension as a batching "
            f"dimension; got {indices_name} {indices_dims} for indices of shape {indices.shape}."
        )
    if len(operand_dims) != len(indices_dims):
        raise TypeError(
            f"{op.capitalize()} op requires equal numbers of operand_batching_dims and "
            f"{indices_name}, got {operand_dims} and {indices_dims}."
        )
    operand_sizes = tuple(operand.shape[d] for d in operand_dims)
    indices_sizes = tuple(indices.shape[d] for d in indices_dims)
    if operand_sizes != indices_sizes:
        raise TypeError(
            f"{op.capitalize()} op requires operand batching dimensions and indices batching "
            f"dimensions to have the same shape, got {operand_sizes} and {indices_sizes} for "
            f"shapes {operand.shape} and {indices.shape}."
        )
