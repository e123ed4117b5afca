"""Where arrays lie: inside traced programs, and drawn as a grid of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import get_aval
from amdjax.core.effects import debug_effect
from amdjax.core.lowering import Decompose
from amdjax.core.placement import compiled_for
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import tree_leaves
from amdjax.core.sharding import Sharding, SingleDeviceSharding

inspect_sharding_p = Primitive("inspect_sharding", multiple_results=True)
inspect_sharding_p.def_abstract_eval(lambda x, *, callback: [])
inspect_sharding_p.def_effects(lambda x, *, callback: frozenset((debug_effect,)))


def _inspect_compiled(x: Any, *, callback: Callable[[Sharding], None]) -> list[Any]:
    callback(SingleDeviceSharding(compiled_for()))
    return []


inspect_sharding_p.lowering = Decompose(_inspect_compiled)


@inspect_sharding_p.def_jvp
def _inspect_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    return inspect_sharding_p.bind(*primals, **params), []


@inspect_sharding_p.def_batch
def _inspect_batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
    return inspect_sharding_p.bind(*args, **params), []


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], None]) -> None:
    """Tell a function where arrays lie, in traced programs too.

    Args:
      value: a pytree of arrays.
      callback: called with the sharding of each, as soon as it is known: for arrays at once, for
        traced ones when the program is compiled.

        >>> amdjax.debug.inspect_array_sharding(amdjax.numpy.ones(2), callback=print)
        SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)
    """
    for x in tree_leaves(value):
        if isinstance(x, ConcreteArray):
            callback(x.sharding)
        else:
            inspect_sharding_p.bind(x, callback=callback)


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Draw which devices have which parts of an array of one or two axes.

    Args:
      arr: the array; of a traced one, the drawing appears when the program is compiled.
      **kwargs: options of `visualize_sharding`.

        >>> amdjax.debug.visualize_array_sharding(amdjax.numpy.ones(4))
        ┌───────┐
        │ CPU 0 │
        └───────┘
    """
    shape = get_aval(arr).shape
    inspect_array_sharding(arr, callback=lambda s: visualize_sharding(shape, s, **kwargs))


def visualize_sharding(
    shape: Sequence[int], sharding: Sharding, *, use_color: bool = True, scale: float = 1.0,
    min_width: int = 9, max_width: int = 80, color_map: Any = None,
) -> None:  # fmt: skip
    """Draw which devices have which parts of an array of this shape.

    Args:
      shape: of one or two axes.
      sharding: how it is divided.
      use_color: accepted; parts are told apart by lines.
      scale: of the drawing; the whole array has a height of ten lines times that.
      min_width: the least width of a part, in characters.
      max_width: the greatest width of a part, and of the drawing.
      color_map: accepted.

    Raises:
      ValueError: there are more axes, or none.

        >>> from amdjax.sharding import SingleDeviceSharding
        >>> amdjax.debug.visualize_sharding((2, 2), SingleDeviceSharding(amdjax.devices()[0]),
        ...                                 scale=0.5)
        ┌──────────┐
        │          │
        │  CPU 0   │
        │          │
        │          │
        └──────────┘
    """
    shape = tuple(shape)
    if len(shape) not in (1, 2):
        raise ValueError(
            f"`visualize_sharding` only works for shapes with 1 and 2 dimensions, got {shape}"
        )
    rows = (1, *shape) if len(shape) == 1 else shape
    parts: dict[tuple[int, int], list[int]] = {}
    extents: set[tuple[int, int]] = set()
    for device, index in sharding.devices_indices_map(shape).items():
        bounds = [s.indices(n)[:2] for s, n in zip(index, shape, strict=True)]
        (top, bottom), (left, right) = [(0, 1)] * (2 - len(bounds)) + bounds
        extents.add((bottom - top, right - left))
        parts.setdefault((top, left), []).append(device.id)
    ((part_height, part_width),) = extents
    kind = next(iter(sharding.device_set)).platform.upper()
    lines = int(10 * scale)
    aspect = rows[1] / rows[0] if len(shape) == 2 else 1 / shape[0]
    width = int(part_width / rows[1] * int(lines * aspect) * 2.5)
    columns = len({left for _, left in parts})
    inner = min(max(width, min_width), max_width) - 2
    inner = min(inner, (max_width - columns - 1) // columns)
    above, more = divmod(int(part_height / rows[0] * lines) - 2, 2) if len(shape) == 2 else (0, 0)
    above, below = max(above, 0), max(above + more, 0)
    names = {at: f"{kind} {','.join(map(str, sorted(ids)))}" for at, ids in parts.items()}
    inner = max(inner, *map(len, names.values()))
    print(_grid(names, inner, above, below))


def _grid(names: dict[tuple[int, int], str], width: int, above: int, below: int) -> str:
    """Boxes with a name in each, by their places."""
    tops, lefts = (sorted({at[axis] for at in names}) for axis in (0, 1))
    rule = lambda a, b, c: a + b.join(["─" * width] * len(lefts)) + c
    blank = "│" + "│".join([" " * width] * len(lefts)) + "│"
    text = [rule("┌", "┬", "┐")]
    for top in tops:
        row = [names[top, left] for left in lefts]
        cells = [" " * ((width - len(n)) // 2) + n for n in row]
        line = "│" + "│".join(c.ljust(width) for c in cells) + "│"
        text += [blank] * above + [line] + [blank] * below
        text.append(rule("├", "┼", "┤") if top != tops[-1] else rule("└", "┴", "┘"))
    return "\n".join(text)
