"""`vectorize`: a function of small arrays made one of large ones by `vmap`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from typing import Any

from amdjax import lax
from amdjax.core.boundaries import api_boundary
from amdjax.numpy._util import as_array, complain_about_ranks
from amdjax.transforms import vmap

_DIMENSION = r"\w+"
_ARGUMENT = rf"\(\s*(?:{_DIMENSION}(?:\s*,\s*{_DIMENSION})*)?\s*,?\s*\)"
_ARGUMENTS = rf"{_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*"
_SIGNATURE = re.compile(rf"\s*(?:{_ARGUMENTS})?\s*->\s*{_ARGUMENTS}\s*")


def _parse(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """`"(m,n),(n)->(m)"` as the core dimensions of the inputs and of the outputs."""
    if not _SIGNATURE.fullmatch(signature):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    inputs, outputs = (
        [tuple(re.findall(_DIMENSION, argument)) for argument in re.findall(_ARGUMENT, side)]
        for side in signature.split("->")
    )
    return inputs, outputs


def _bind_core(shape: tuple[int, ...], names: tuple[str, ...], sizes: dict[str, int]) -> None:
    """Record the sizes of an argument's core dimensions, checking them against earlier ones."""
    if len(shape) < len(names):
        raise ValueError(
            f"input with shape {shape} does not have enough dimensions for core dimensions {names}"
        )
    for name, size in zip(names, shape[len(shape) - len(names) :], strict=True):
        if sizes.setdefault(name, size) != size:
            raise ValueError(
                f"inconsistent size for core dimension {name!r}: {sizes[name]} vs. {size}"
            )


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:
    """Make a function broadcast over the leading axes of its arguments.

    Args:
      pyfunc: a function of scalars, or of arrays with the axes that `signature` names.
      excluded: positions and names of arguments passed on unchanged.
      signature: core axes, as `"(m,n),(n)->(m)"`; None means scalars to scalars.

    Returns:
      The vectorized function.

    Raises:
      ValueError: `signature` is malformed, or arguments do not match it.

        >>> matvec = jnp.vectorize(lambda a, v: a @ v, signature="(m,n),(n)->(m)")
        >>> matvec(jnp.ones((5, 2, 3)), jnp.ones(3)).shape
        (5, 2)
    """
    if any(not isinstance(e, (str, int)) for e in excluded):
        raise TypeError("jax.numpy.vectorize can only exclude integer or string arguments")
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"{excluded=} contains negative numbers")
    parsed = None if signature is None else _parse(signature)

    @functools.wraps(pyfunc)
    @api_boundary
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        named = {k: v for k, v in kwargs.items() if k in excluded}
        batched_names = [k for k in kwargs if k not in excluded]
        if batched_names and parsed is not None:
            raise TypeError("keyword arguments of a vectorized function must be excluded")
        absent = {i for i, v in enumerate(args) if v is None and i not in excluded}
        if absent and parsed is not None and any(parsed[0][i] for i in absent):
            raise ValueError(f"Cannot pass None at locations {absent} with {signature=}")
        left_out = absent.union(excluded)
        positions = [i for i in range(len(args)) if i not in left_out]
        values = [args[i] for i in positions] + [kwargs[k] for k in batched_names]

        def call(*batched: Any) -> Any:
            full = list(args)
            for i, value in zip(positions, batched):
                full[i] = value
            rest = dict(zip(batched_names, batched[len(positions) :]))
            return pyfunc(*full, **rest, **named)

        cores: list[Any]
        cores, outs = parsed if parsed is not None else ([()] * len(values), None)
        if len(cores) != len(values):
            raise TypeError(
                f"wrong number of positional arguments: expected {len(cores)} for {signature}, got"
                f" {len(values)}"
            )
        return _apply(call, values, cores, outs)

    return wrapped


def _apply(
    call: Callable[..., Any],
    values: list[Any],
    cores: list[Any],
    outs: list[tuple[str, ...]] | None,
) -> Any:
    """Nest one `vmap` for each broadcast axis around `call`."""
    arrays = [as_array("vectorize", value, i) for i, value in enumerate(values)]
    sizes: dict[str, int] = {}
    for x, names in zip(arrays, cores):
        _bind_core(x.shape, names, sizes)
    loops = [x.shape[: x.ndim - len(names)] for x, names in zip(arrays, cores)]
    loop = lax.broadcast_shapes(*loops) if loops else ()
    if outs is not None and len({len(own) for own in loops if own}) > 1:
        complain_about_ranks("vectorize", loops)

    def checked(*batched: Any) -> Any:
        result = call(*batched)
        if outs is not None:
            if len(outs) > 1 and not isinstance(result, tuple):
                raise TypeError(f"output must be a tuple of {len(outs)} arrays, got {result!r}")
            results = result if isinstance(result, tuple) else (result,)
            if len(results) != len(outs):
                raise TypeError(
                    f"wrong number of output arguments: expected {len(outs)}, got {len(results)}"
                )
            for x, names in zip(results, outs):
                shape = as_array("vectorize", x).shape
                if len(shape) != len(names):
                    raise ValueError(
                        f"output shape {shape} does not match core dimensions {names} of the"
                        " vectorized function's signature"
                    )
                _bind_core(shape, names, sizes)
        return result

    mapped = checked
    # Axes are counted from the right, so that an argument joins in only where it has an axis
    # of its own that is not one.
    for depth in range(1, len(loop) + 1):
        in_axes = tuple(0 if _has_axis(own, depth) else None for own in loops)
        if any(axis == 0 for axis in in_axes):
            mapped = vmap(mapped, in_axes=in_axes)
        else:
            mapped = vmap(mapped, in_axes=in_axes, axis_size=loop[-depth])
    arrays = [_drop_ones(x, own) for x, own in zip(arrays, loops)]
    return mapped(*arrays)


def _has_axis(own: tuple[int, ...], depth: int) -> bool:
    return len(own) >= depth and own[-depth] != 1


def _drop_ones(x: Any, own: tuple[int, ...]) -> Any:
    """`x` without the loop axes of one that broadcasting stretches."""
    ones = tuple(i for i, n in enumerate(own) if n == 1)
    return lax.squeeze(x, ones) if ones else x
